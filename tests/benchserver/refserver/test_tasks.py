"""Tasks that end with the block that started them."""

from __future__ import annotations

import asyncio

import pytest

from benchserver.refserver.tasks import TaskScope


@pytest.mark.asyncio
async def test_a_scope_cancels_its_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async with TaskScope() as scope:
        scope.start(work("a"))
        scope.start(work("b"))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_scope_raises_the_first_failure() -> None:
    async def fail() -> None:
        raise LookupError("first")

    async def fail_in_a_scope() -> None:
        async with TaskScope() as scope:
            scope.start(fail())
            await scope.failure

    with pytest.raises(LookupError, match="first"):
        await fail_in_a_scope()
