"""A lock for each name, for as long as somebody needs it."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.refserver.tiers.fs.keylocks import KeyLocks

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_names_are_locked_one_by_one_and_forgotten() -> None:
    locks, order, b_is_through = KeyLocks(), list[str](), asyncio.Event()

    async def hold(name: str, label: str) -> None:
        async with locks.of(name):
            order.append(label)
            if name == "a":
                await b_is_through.wait()
            order.append(label)
        if name == "b":
            b_is_through.set()

    jobs = [asyncio.ensure_future(hold("a", "1")), asyncio.ensure_future(hold("a", "2"))]
    waiting = asyncio.ensure_future(hold("a", "never"))
    jobs.append(asyncio.ensure_future(hold("b", "3")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(*jobs)
    assert order == ["1", "3", "3", "1", "2", "2"]
    assert not len(locks)
