"""What is shown of a process in which nothing happens any more."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchserver.stage import stacks
from benchserver.stage.stacks import stacks_of


async def wait_for_it(event: asyncio.Event) -> None:
    await event.wait()


async def outer(event: asyncio.Event) -> None:
    await wait_for_it(event)


@pytest.mark.asyncio
async def test_tasks_are_shown_with_all_that_they_await_and_the_same_ones_once() -> None:
    event = asyncio.Event()
    tasks = [asyncio.create_task(outer(event)) for _ in range(7)]
    await asyncio.sleep(0)
    text = stacks_of(asyncio.get_running_loop())
    event.set()
    await asyncio.gather(*tasks)
    assert text.count("in wait_for_it\n") == 1
    shown = text[text.index("asyncio task, 7 times:\n") :]
    assert shown.index("in outer\n") < shown.index("in wait_for_it\n") < shown.index("in wait\n")


@pytest.mark.asyncio
async def test_threads_are_shown_by_their_names_without_the_numbers_of_workers() -> None:
    loop, inside, over = asyncio.get_running_loop(), threading.Barrier(3), threading.Event()

    def hang() -> None:
        inside.wait(20)
        over.wait(20)

    with ThreadPoolExecutor(2, thread_name_prefix="hangs") as executor:
        work = [executor.submit(hang) for _ in range(2)]
        inside.wait(20)
        text = stacks_of(loop)
        over.set()
        for one in work:
            one.result()
    assert "thread hangs" in text
    assert "in hang\n" in text
    assert "thread MainThread:\n" in text


@pytest.mark.asyncio
async def test_what_is_shown_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_MOST_CHARS", 200)
    text = stacks_of(asyncio.get_running_loop())
    assert len(text) < 250
    assert text.endswith("characters more\n")
