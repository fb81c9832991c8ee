"""The baseline as a command: `bench-server` without a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchserver.scenarios.baseline.options import TABLES
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

    return Baseline(part)


def _wording() -> Wording:
    from benchserver.scenarios.baseline.lines import WORDING

    return WORDING


COMMAND = Command(
    name="",
    help="""Prove that an LMCache MP cache server returns every byte, and measure it.

    Without a command: the baseline run.  Exit code 0: everything asked for was proven; 1: something
    failed or stayed unproven; 2: wrong usage.
    """,
    tables=TABLES,
    part=_part,
    scenario=_scenario,
    wording=_wording,
)
