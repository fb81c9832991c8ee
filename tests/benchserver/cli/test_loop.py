"""Work on a loop: its result, its end by a signal, its threads."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from benchserver import ending as ending_module
from benchserver.cli.loop import run_until_asked
from benchserver.ending import Ending


def test_the_result_of_work_that_ends_by_itself() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert run_until_asked(work(), Ending()) == 7


def test_a_signal_cancels_the_work_which_still_cleans_up() -> None:
    done: list[str] = []

    async def work() -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            done.append("cleaned")
        return 7

    ending = Ending()
    assert run_until_asked(work(), ending) is None
    assert ending.asked
    assert done == ["cleaned"]


def test_an_error_of_the_work_is_the_callers() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_until_asked(work(), Ending())


def test_a_thread_that_goes_on_is_known_to_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending_module, "_THREADS_WITHIN_S", 0.01)
    left: list[int] = []
    go_on = threading.Event()

    async def work() -> None:
        asyncio.get_running_loop().run_in_executor(None, go_on.wait, 60)

    ending = Ending(leave=left.append)
    assert run_until_asked(work(), ending) is None
    ending.end(3)
    assert left == [3]
    go_on.set()
