"""The load as a command: `bench-server load`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchserver.scenarios.command import Command
from benchserver.scenarios.load.options import TABLES

if TYPE_CHECKING:
    from benchserver.config.engine import Engine
    from benchserver.line import Wording
    from benchserver.scenarios.load.config import LoadConfig
    from benchserver.stage.scenario import Scenario


def _part() -> type[LoadConfig]:
    from benchserver.scenarios.load.config import LoadConfig

    return LoadConfig


def _scenario(part: LoadConfig) -> Scenario:
    from benchserver.scenarios.load.scenario import Load

    return Load(part)


def _engine(part: LoadConfig, asked: Engine) -> Engine:
    return part.engine(asked)


def _wording() -> Wording:
    from benchserver.scenarios.load.lines import WORDING

    return WORDING


COMMAND = Command(
    name="load",
    help="""Load a server as a fleet of engines does, and prove every byte that it gives back.

    Each request is LOOKUP, RETRIEVE of what hit, STORE of the rest, END_SESSION.  Exit code 0:
    everything asked for was proven; 1: something failed or stayed unproven; 2: wrong usage.
    """,
    tables=TABLES,
    part=_part,
    scenario=_scenario,
    engine=_engine,
    wording=_wording,
)
