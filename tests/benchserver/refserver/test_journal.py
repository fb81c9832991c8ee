"""One bounded line for each thing that went wrong."""

from __future__ import annotations

import pytest

from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.refserver.journal import MAX_LINES_A_WINDOW, Journal


@pytest.mark.asyncio
async def test_a_flood_of_lines_is_counted_instead() -> None:
    clock, lines = VirtualClock(), list[str]()
    journal = Journal(clock, lines.append)
    for number in range(MAX_LINES_A_WINDOW + 5):
        journal.line(f"{number}\n{'x' * 1000}")
    assert len(lines) == MAX_LINES_A_WINDOW
    assert all("\n" not in line and len(line) < 500 for line in lines)
    await clock.sleep_ns(NS_PER_S)
    journal.line("later")
    assert lines[-2:] == [
        "embedded server: 5 more lines were not shown",
        "embedded server: later",
    ]
