"""Runs that read from L2, with real servers: L1 is empty by then, and the folder is the run's."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.clock import RealClock
from benchserver.selftest import runs
from benchserver.selftest.case import FOLDER, Case
from benchserver.selftest.judge import Row
from benchserver.selftest.runs import run_cases

WARM = ("--expect-warm", "--end", "1")
SLOW = "mock://1/?write_throughput=0.000001"
"""About a kilobyte a second: nothing is ever through."""


def reread(*serve: str) -> Row:
    """Run twice with L1 emptied in between, without a fault."""
    case = Case(switch="", before=("--end", "1"), from_l2=True, serve=serve, options=WARM)
    [row] = asyncio.run(run_cases([case], jobs=1, clock=RealClock(), on_row=lambda _: None))
    return row


def test_without_l2_nothing_is_left() -> None:
    row = reread()
    assert row.wrong.startswith("exit 1, expected 0, cold_lookup, ")


def test_a_run_has_a_folder_of_its_own() -> None:
    for _ in range(2):
        assert reread("--l2", f"fs://{FOLDER}/tier").wrong == ""


def test_l1_is_not_emptied_before_l2_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_WRITTEN_WITHIN_S", 0.3)
    assert reread("--l2", SLOW).wrong == "the tiers were still writing after 0.3 s"
