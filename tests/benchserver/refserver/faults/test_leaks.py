"""What faults leave behind: locks, sessions, registrations."""

from __future__ import annotations

import os

import pytest

from protocol.messages import VOID
from protocol.ops import Op
from tests.faultstage import Stage


@pytest.mark.asyncio
async def test_leaks(stage: Stage) -> None:
    stage.switch("leak_lock", "leak_session", "leak_registration")
    await stage.round_trip()
    assert stage.locks() == 4
    assert await stage.call(Op.END_SESSION, "a") is VOID
    assert stage.core.sessions.count == 1
    assert await stage.call(Op.UNREGISTER_KV_CACHE, 0) is VOID
    assert sorted(stage.core.registry.mapped) == [0, 1]


@pytest.mark.asyncio
async def test_memory_and_files_that_a_store_keeps(stage: Stage) -> None:
    before = len(os.listdir("/proc/self/fd"))
    stage.switch("leak_memory", "leak_descriptor")
    for name in ("a", "b", "c"):
        await stage.store(name)
    assert stage.fired() == [3, 3]
    assert len(os.listdir("/proc/self/fd")) == before + 3
    stage.switch()
    assert len(os.listdir("/proc/self/fd")) == before
