"""The soak as a command: `bench-server soak`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchserver.options.engine import ENGINE
from benchserver.options.output import OUTPUT
from benchserver.options.target import TARGET
from benchserver.options.watch import WATCH
from benchserver.scenarios.baseline.options import BASELINE
from benchserver.scenarios.command import Command

if TYPE_CHECKING:
    from benchserver.line import Wording
    from benchserver.scenarios.baseline.config import BaselineConfig
    from benchserver.stage.scenario import Scenario


def _part() -> type[BaselineConfig]:
    from benchserver.scenarios.baseline.config import BaselineConfig

    return BaselineConfig


def _scenario(part: BaselineConfig) -> Scenario:
    from benchserver.scenarios.baseline.scenario import Baseline

    return Baseline(part, owes_growth=True)


def _wording() -> Wording:
    from benchserver.scenarios.soak.lines import WORDING

    return WORDING


COMMAND = Command(
    name="soak",
    help="""Prove the baseline for hours or days, and that nothing grows on either side.

    Runs until Ctrl-C, or for --duration.  Exit code 0: all was proven, and memory, descriptors,
    threads, sessions and locks do not grow; 1: something failed, or nobody can tell yet; 2: wrong
    usage.
    """,
    tables=(TARGET, ENGINE, BASELINE, WATCH, OUTPUT),
    part=_part,
    scenario=_scenario,
    wording=_wording,
)
