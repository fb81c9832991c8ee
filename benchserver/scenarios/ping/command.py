"""The ping as a command: `bench-server ping`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchserver.scenarios.command import Command
from benchserver.scenarios.ping.options import TABLES

if TYPE_CHECKING:
    from benchserver.line import Wording
    from benchserver.scenarios.ping.config import PingConfig
    from benchserver.stage.scenario import Scenario


def _part() -> type[PingConfig]:
    from benchserver.scenarios.ping.config import PingConfig

    return PingConfig


def _scenario(part: PingConfig) -> Scenario:
    from benchserver.scenarios.ping.scenario import Ping

    return Ping(part)


def _wording() -> Wording:
    from benchserver.scenarios.ping.lines import WORDING

    return WORDING


COMMAND = Command(
    name="ping",
    help="""Ask a server for its chunk size and PING it, again and again; print the latencies.

    Registers nothing and needs no memory: it runs from any host. Exit code 0: every request was
    answered in time; 1: one was not; 2: wrong usage.
    """,
    tables=TABLES,
    part=_part,
    scenario=_scenario,
    wording=_wording,
)
