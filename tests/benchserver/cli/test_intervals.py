"""The interval log of a run from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchserver.check.run import RUN
from benchserver.cli.intervals import interval_record, open_intervals
from benchserver.cli.reports import CONTENTS
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.errors import UsageError
from benchserver.monitor.snapshot import Snapshot
from benchserver.outlet import all_of_them
from benchserver.report.intervals import open_interval_log
from tests.benchserver.report.snapshots import snapshot

GoodResult = Callable[..., Any]
NONE = dict.fromkeys(option.removeprefix("--") for option in CONTENTS)


@pytest.mark.asyncio
async def test_a_line_now_and_then_and_one_at_the_end(tmp_path: Path) -> None:
    clock, path, seen = VirtualClock(by_hand=True), tmp_path / "run.jsonl", 0

    def count() -> Snapshot:
        nonlocal seen
        seen += 1
        return snapshot(proven=seen)

    with open_interval_log(str(path)) as log:
        async with interval_record(log, 2.5, list[str]().append, clock)(count):
            for _ in range(2):
                await clock.until_asleep(1)
                await clock.move_ns(5 * NS_PER_S // 2)
        assert log.settle(all_of_them) == ""
    assert [json.loads(line)["proven"] for line in path.read_text().splitlines()] == [1, 2, 3]


@pytest.mark.asyncio
async def test_a_disk_that_is_full_is_told_once_and_fails_the_run(good_result: GoodResult) -> None:
    clock, told, result = VirtualClock(by_hand=True), list[str](), good_result()
    options = {**NONE, "interval_log": "/dev/full", "interval_log_every": 1.0}
    with open_intervals(options, CONTENTS) as intervals:
        (watch,) = intervals.watchers(told.append, clock)
        async with watch(snapshot):
            await clock.until_asleep(1)
            while not told:
                await clock.move_ns(NS_PER_S)
                await asyncio.sleep(0.001)  # a thread writes
        intervals.settle(result, all_of_them)
    said = "cannot write the interval log /dev/full: No space left on device"
    assert (told, result.ledger.tallies[RUN].texts, result.exit_code) == ([said], [said], 1)


def test_without_one_nobody_watches_and_nothing_is_settled(good_result: GoodResult) -> None:
    result = good_result()
    options = {**NONE, "interval_log": None, "interval_log_every": 60.0}
    with open_intervals(options, CONTENTS) as intervals:
        assert intervals.watchers(list[str]().append, VirtualClock()) == ()
        intervals.settle(result, all_of_them)
    assert result.exit_code == 0


def test_a_report_and_the_log_are_two_files(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    options = {**NONE, "json": path, "interval_log": path, "interval_log_every": 60.0}
    with pytest.raises(UsageError, match="--json and --interval-log both name"):  # noqa: SIM117
        with open_intervals(options, CONTENTS):
            pass
