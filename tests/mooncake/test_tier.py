"""The tier on a real Mooncake Store: the suite of every tier, and what is Mooncake's own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import pytest

from benchserver.errors import FatalError
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.mooncake.process import START_S
from benchserver.refserver.tiers.mooncake.tier import CALL_S, MooncakeTier
from benchserver.refserver.tiers.tier import Tier, TierError, TierMissError
from benchserver.refserver.tiers.url import open_tier
from tests.benchserver.refserver.tiers.conformance import (
    CHECKS,
    Check,
    content,
    expect,
    expect_miss,
    get,
    key,
    put,
)
from tests.mitm.forked import ROOT
from tests.mooncake.master import Master, running_master

pytestmark = [pytest.mark.mooncake, pytest.mark.usefixtures("leak_free")]

MIB = 1 << 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with running_master(tmp_path / "master.log") as running:
        yield running


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[MooncakeTier]:
    tier = open_tier(url)
    assert isinstance(tier, MooncakeTier)
    try:
        yield tier
    finally:
        await tier.close()
        assert not is_alive(tier._client.pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def other_process(url: str, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has stored objects of these numbers, and holds them until the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mooncake.holder", url, *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_mooncake_conforms(check: Check, tmp_path: Path) -> None:
    """Every tier that a check opens has a master of its own, so that it is empty."""
    serial = count()

    @asynccontextmanager
    async def open_empty() -> AsyncIterator[Tier]:
        with running_master(tmp_path / f"master-{next(serial)}.log") as running:
            async with opened(running.url()) as tier:
                yield tier

    await check(open_empty)


@pytest.mark.asyncio
@pytest.mark.parametrize("segment_gb", [0, 0.125])
async def test_another_process_finds_what_this_one_stored(
    master: Master, segment_gb: float
) -> None:
    with other_process(master.url(), 1, 2):
        async with opened(master.url(segment_gb=segment_gb)) as tier:
            assert await tier.probe([key(1), key(2), key(3)]) == 2
            for number in (1, 2):
                await expect(tier, key(number), content(number, MIB))
            await put(tier, key(3), content(3, 16 * MIB))
        async with opened(master.url(segment_gb=0)) as tier:
            await expect(tier, key(2), content(2, MIB))
            if not segment_gb:
                await expect(tier, key(3), content(3, 16 * MIB))


@pytest.mark.asyncio
async def test_what_lay_in_a_closed_segment_is_gone(master: Master) -> None:
    async with opened(master.url()) as tier:
        await put(tier, key(1), content(1, MIB))
    async with opened(master.url()) as tier:
        await expect_miss(tier, key(1), MIB)


@pytest.mark.asyncio
async def test_without_any_segment_there_is_no_room(master: Master) -> None:
    async with opened(master.url(segment_gb=0)) as tier:
        with pytest.raises(TierError, match="no segment of the store has room"):
            await put(tier, key(1), content(1, MIB))
        await expect_miss(tier, key(1), MIB)
        assert (tier.stats.errors, tier.stats.objects) == (1, 0)


@pytest.mark.asyncio
async def test_a_full_store_evicts_or_refuses_and_never_gives_wrong_data(master: Master) -> None:
    stored = 0
    async with opened(master.url(segment_gb=0.0625)) as tier:
        for number in range(40):
            try:
                await tier.write(key(number), content(number, 4 * MIB))
            except TierError as error:
                assert "has room" in str(error), error  # noqa: PT017
                continue
            stored += 1
        assert stored > 15, "it evicts"
        there = 0
        for number in range(40):
            try:
                seen = await get(tier, key(number), 4 * MIB)
            except TierMissError:
                continue
            assert seen == content(number, 4 * MIB)
            there += 1
        assert 5 <= there <= 15


@pytest.mark.asyncio
async def test_objects_replaced_by_another_process_are_never_mixed(master: Master) -> None:
    """Mooncake replaces in place: without a digest every eighth of these reads was a mixture."""
    nbytes = 3 * MIB
    versions = [content(number, nbytes) for number in range(4)]

    async def write_versions(tier: Tier, enough: asyncio.Event) -> None:
        for number in count():
            if enough.is_set():
                return
            await tier.write(key(1), versions[number % 4])

    enough = asyncio.Event()
    whole = 0
    # Two tiers are two clients, and nothing keeps one's reads from the other's writes.
    async with opened(master.url()) as writer, opened(master.url(segment_gb=0)) as reader:
        await writer.write(key(1), versions[0])
        writing = asyncio.ensure_future(write_versions(writer, enough))
        for _ in range(300):
            try:
                assert await get(reader, key(1), nbytes) in versions
            except TierMissError:
                continue
            whole += 1
        enough.set()
        await writing
        await expect(reader, key(1), memoryview(await get(reader, key(1), nbytes)))
        print(f"whole {whole}, missed {reader.stats.misses}, mixed {reader.stats.corrupt}")
        assert whole
        assert reader.stats.errors == 0


@pytest.mark.asyncio
async def test_a_killed_holder_costs_objects_and_no_more(master: Master) -> None:
    with other_process(master.url(), 1) as holder:
        async with opened(master.url(segment_gb=0)) as tier:
            await expect(tier, key(1), content(1, MIB))
            holder.kill()
            holder.wait()
            # Its client is a process of its own; it notices, and takes the segment away.
            await _until_missing(tier, key(1))


async def _until_missing(tier: Tier, which: ObjectKey) -> None:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            await get(tier, which, MIB)
        except TierMissError:
            return
        except TierError:
            pass
        await asyncio.sleep(0.1)
    pytest.fail("it was not missing after 15 s")


@pytest.mark.asyncio
async def test_a_killed_client_fails_every_call_at_once(master: Master) -> None:
    async with opened(master.url()) as tier:
        await put(tier, key(1), content(1, MIB))
        os.kill(tier._client.pid, signal.SIGKILL)
        for call in (
            lambda: tier.probe([key(1)]),
            lambda: get(tier, key(1), MIB),
            lambda: tier.write(key(2), content(2, MIB)),
        ):
            with pytest.raises(TierError, match="client was killed by SIGKILL; restart"):
                await call()


@pytest.mark.asyncio
async def test_a_killed_master_fails_calls_in_time_and_a_new_one_is_found(
    master: Master,
) -> None:
    async with opened(master.url()) as tier:
        await put(tier, key(1), content(1, MIB))
        master.process.kill()
        master.process.wait()
        for _ in range(2):
            for call in (
                lambda: tier.probe([key(1)]),
                lambda: get(tier, key(1), MIB),
                lambda: tier.write(key(2), content(2, MIB)),
            ):
                started = time.monotonic()
                with pytest.raises(TierError, match="master"):
                    await call()
                assert time.monotonic() - started < CALL_S
        with started_again(master):
            await _until_stored(tier)


@contextmanager
def started_again(master: Master) -> Iterator[None]:
    """Run a new master in the place of one that was killed."""
    process = subprocess.Popen(master.command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def _until_stored(tier: Tier) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            await put(tier, key(5), content(5, MIB))
        except TierError:
            await asyncio.sleep(0.2)
            continue
        await expect(tier, key(5), content(5, MIB))
        return
    pytest.fail("the new master was not found")


@pytest.mark.asyncio
async def test_a_stopped_master_fails_calls_in_time(master: Master) -> None:
    async with opened(master.url()) as tier:
        await put(tier, key(1), content(1, MIB))
        master.process.send_signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(TierError):
                await tier.write(key(2), content(2, MIB))
            assert time.monotonic() - started < CALL_S + 1
        finally:
            master.process.send_signal(signal.SIGCONT)


def test_a_stopped_master_ends_the_start_in_time(master: Master) -> None:
    master.process.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(FatalError) as caught:
        open_tier(master.url())
    assert time.monotonic() - started < START_S + 2
    assert "does the master answer?" in str(caught.value)


def test_a_killed_server_takes_its_client_along(master: Master) -> None:
    with other_process(master.url(), 1) as server:
        client = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        assert is_alive(client)
        server.kill()
        server.wait()
        deadline = time.monotonic() + 10
        while _runs(client) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs(client)


def _runs(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
