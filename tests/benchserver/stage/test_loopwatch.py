"""A thread that looks whether an event loop turns."""

from __future__ import annotations

import asyncio
import threading

import pytest

from benchserver.errors import EXIT_FAILED
from benchserver.stage.loopwatch import watched

_WITHIN_S = 20


@pytest.mark.asyncio
async def test_a_loop_that_stands_still_ends_the_process_and_shows_where() -> None:
    loop, left, codes, said = (
        asyncio.get_running_loop(),
        threading.Event(),
        list[int](),
        list[str](),
    )

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    with watched(loop, after_s=0.05, show=said.append, leave=leave):
        assert left.wait(_WITHIN_S)  # the loop does not turn meanwhile
    assert codes == [EXIT_FAILED]
    (text,) = said
    assert "in test_a_loop_that_stands_still_ends_the_process_and_shows_where\n" in text
    assert "bench-server: error: stalled: our own event loop stood still for 0.05 s" in text


@pytest.mark.asyncio
async def test_a_loop_that_turns_is_left_alone() -> None:
    loop, left = asyncio.get_running_loop(), list[int]()
    turns = 0
    with watched(loop, after_s=5.0, show=lambda _: None, leave=left.append):
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
    assert turns == 100
    assert left == []
    assert "loop watch" not in [thread.name for thread in threading.enumerate()]
