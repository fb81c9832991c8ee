"""Memory that is lent, and deadlines."""

from __future__ import annotations

import asyncio
import os

import pytest

from benchserver.refserver.tiers.mooncake.staging import Staging
from benchserver.refserver.tiers.tier import TierError

pytestmark = pytest.mark.usefixtures("leak_free")
PAGE = 4096


@pytest.mark.asyncio
async def test_a_lease_goes_back_when_all_have_released_it() -> None:
    staging = Staging(4 * PAGE)
    lease = await staging.lend(PAGE + 1)
    assert staging.free_bytes == 2 * PAGE
    lease.view[:] = b"x" * (PAGE + 1)
    seen = os.pread(staging.descriptor, PAGE + 2, lease.offset)
    assert seen == b"x" * (PAGE + 1) + b"\0"
    lease.share()
    lease.release()
    assert staging.free_bytes == 2 * PAGE
    lease.release()
    assert staging.free_bytes == 4 * PAGE
    staging.close()


@pytest.mark.asyncio
async def test_who_waits_is_served_in_turn() -> None:
    staging = Staging(4 * PAGE)
    first = await staging.lend(3 * PAGE)
    large = asyncio.ensure_future(staging.lend(4 * PAGE))
    small = asyncio.ensure_future(staging.lend(PAGE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not small.done(), "one that would fit, but comes later"
    first.release()
    lease = await large
    assert not small.done()
    lease.release()
    (await small).release()
    assert staging.free_bytes == 4 * PAGE
    staging.close()


@pytest.mark.asyncio
async def test_who_waits_may_give_up() -> None:
    staging = Staging(PAGE)
    first = await staging.lend(1)
    waiting = [asyncio.ensure_future(staging.lend(1)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    first.release()
    (await waiting[2]).release()
    assert staging.free_bytes == PAGE
    staging.close()


@pytest.mark.asyncio
async def test_what_never_fits_is_refused_at_once() -> None:
    staging = Staging(PAGE)
    with pytest.raises(TierError, match="does not pass through a buffer of 4096"):
        await staging.lend(PAGE + 1)
    staging.close()


@pytest.mark.asyncio
async def test_memory_is_taken_as_it_is_used() -> None:
    staging = Staging(16 << 20)
    assert blocks_of(staging) == 0
    lease = await staging.lend(3 * PAGE)
    lease.view[:] = bytes(3 * PAGE)
    assert blocks_of(staging) * 512 == 3 * PAGE
    lease.release()
    staging.close()


def blocks_of(staging: Staging) -> int:
    return os.fstat(staging.descriptor).st_blocks
