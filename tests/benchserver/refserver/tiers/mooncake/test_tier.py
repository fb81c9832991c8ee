"""The mooncake tier over a store of our own; tests/mooncake has the real one."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchserver.errors import FatalError, HarnessError, UsageError
from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.framing import FIXED_BYTES, header_bytes
from benchserver.refserver.tiers.keyname import key_bytes
from benchserver.refserver.tiers.mooncake import process as mooncake_process
from benchserver.refserver.tiers.mooncake import tier as mooncake
from benchserver.refserver.tiers.mooncake.codes import meaning_of
from benchserver.refserver.tiers.mooncake.tier import MooncakeTier
from benchserver.refserver.tiers.tier import Tier, TierError, TierMissError
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
from tests.oddpeers import closed

pytestmark = pytest.mark.usefixtures("leak_free")

FAKE = Path(__file__).with_name("fake_mooncake.py")
HEADER = header_bytes(key_bytes(key(1)))
SIZE = 5000


@pytest.fixture
def config() -> Iterator[MooncakeConfig]:
    """A tier's settings, with somebody listening where master and metadata server should."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        yield MooncakeConfig(
            master=place, metadata=f"http://{place}/metadata", buffer_bytes=32 << 20
        )


@pytest.fixture
def fake_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the store of our own in the place of the real package."""
    package = tmp_path / "mooncake"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(FAKE, package / "store.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def wrong(fake_store: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Tell the store how to fail."""
    how = str(request.param)
    monkeypatch.setenv("FAKE_MOONCAKE", how)
    return how


@asynccontextmanager
async def opened(config: MooncakeConfig) -> AsyncIterator[MooncakeTier]:
    tier = MooncakeTier(config)
    try:
        yield tier
    finally:
        await tier.close()
        with pytest.raises(ProcessLookupError):
            os.kill(tier.client_pid, 0)


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_tier_conforms(check: Check, config: MooncakeConfig) -> None:
    @asynccontextmanager
    async def open_tier() -> AsyncIterator[Tier]:
        async with opened(config) as tier:
            yield tier

    await check(open_tier)


def refused(config: MooncakeConfig, kind: type[HarnessError]) -> str:
    with pytest.raises(kind) as caught:
        MooncakeTier(config)
    line = str(caught.value)
    assert line.startswith(f"L2 tier mooncake://{config.master}: ")
    assert line.isprintable()
    return line


def test_a_missing_package_names_the_extra(
    config: MooncakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'mooncake':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "pip install 'bench-server[mooncake]'" in refused(config, UsageError)


@pytest.mark.parametrize("wrong", ["no library"], indirect=True)
def test_a_missing_library_names_debians_packages(config: MooncakeConfig, wrong: str) -> None:
    line = refused(config, UsageError)
    assert "libibverbs.so.1: cannot open shared object file" in line
    assert "libibverbs1 librdmacm1 libnuma1" in line


@pytest.mark.usefixtures("fake_store")
@pytest.mark.parametrize("what", ["master", "metadata server"])
def test_nobody_listening_is_said(config: MooncakeConfig, what: str) -> None:
    with closed() as port:
        dead = f"127.0.0.1:{port}"
        if what == "master":
            config = MooncakeConfig(master=dead, metadata=config.metadata)
        else:
            config = MooncakeConfig(master=config.master, metadata=f"http://{dead}/metadata")
        line = refused(config, FatalError)
    assert f"Mooncake's {what} at {dead}: Connection refused; is it running?" in line


OPENING = {
    "setup fails": "setup gave -1: E1129 no segment",
    "setup crashes": "was killed by SIGSEGV while it opened the store: E1129 the last words",
    "setup hangs": "not open after 1 s; does the master answer?",
    "no registration": "register_buffer gave -600",
}


@pytest.mark.parametrize("wrong", OPENING, indirect=True)
def test_a_store_that_cannot_be_opened_is_said(
    config: MooncakeConfig, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrong == "setup hangs":
        monkeypatch.setattr(mooncake_process, "START_S", 1.0)
    assert OPENING[wrong] in refused(config, FatalError)


DAMAGE = ["flip 0", "flip 11", "flip 15", "flip 23", "flip 24", f"flip {FIXED_BYTES}"]
DAMAGE += [f"flip {HEADER}", f"flip {HEADER + SIZE - 1}"]
DAMAGE += ["cut 0", "cut 10", f"cut {HEADER}", f"cut {HEADER + SIZE - 1}", "-703"]


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", DAMAGE, indirect=True)
async def test_what_is_not_what_was_written_is_a_miss(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        with pytest.raises(TierMissError):
            await get(tier, key(1), SIZE)
        corrupt = 0 if wrong == "-703" else 1
        assert (tier.stats.misses, tier.stats.corrupt) == (1, corrupt)


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["-707", "-800", "-12345"], indirect=True)
async def test_a_code_is_an_error_with_its_meaning(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        with pytest.raises(TierError) as caught:
            await get(tier, key(1), SIZE)
        assert not isinstance(caught.value, TierMissError)
        assert str(caught.value) == meaning_of(int(wrong))
        assert tier.stats.errors == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["full"], indirect=True)
async def test_a_full_store_refuses_after_some_tries(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        with pytest.raises(TierError, match=r"has room.*\(Mooncake's code -200\); not stored"):
            await put(tier, key(1), content(1, SIZE))
        await expect_miss(tier, key(1), SIZE)


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["no master"], indirect=True)
async def test_a_probe_that_fails_is_no_miss(config: MooncakeConfig, wrong: str) -> None:
    async with opened(config) as tier:
        with pytest.raises(TierError, match="the master cannot be reached"):
            await tier.probe([key(1)])


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_a_long_probe_takes_several_calls(config: MooncakeConfig) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        await put(tier, key(2), content(2, SIZE))
        keys = [key(1)] * mooncake.PROBE_AT_ONCE * 2
        assert await tier.probe(keys) == len(keys)
        assert await tier.probe([*keys, key(2), key(3), key(1)]) == len(keys) + 1


CRASHES = {"read crashes": "was killed by SIGSEGV", "read raises": "ended with exit code 1"}


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", CRASHES, indirect=True)
async def test_a_crash_fails_what_waits_and_all_that_follows(
    config: MooncakeConfig, wrong: str
) -> None:
    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        assert tier.is_healthy
        reads = [asyncio.ensure_future(get(tier, key(1), SIZE)) for _ in range(3)]
        for ended in await asyncio.gather(*reads, return_exceptions=True):
            assert f"Mooncake's client {CRASHES[wrong]}; restart" in str(ended)
        with pytest.raises(TierError, match="Mooncake's client"):
            await tier.write(key(2), content(2, SIZE))
        assert not tier.is_healthy


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["read hangs"], indirect=True)
async def test_a_library_that_hangs_costs_the_deadline_and_no_more(
    config: MooncakeConfig, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it keep the end from coming, though the call is still under way then."""

    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))
        out = bytearray(SIZE)
        with monkeypatch.context() as short:
            short.setattr(mooncake, "CALL_S", 0.3)
            with pytest.raises(TierError, match=r"the read took longer than 0\.3 s"):
                await tier.read(key(1), memoryview(out))
        assert out == bytes(SIZE)
        assert tier.stats.queued == 0
        assert await tier.probe([key(1)]) == 1
        started = time.monotonic()
    assert time.monotonic() - started < mooncake_process.CLOSE_S


@pytest.mark.asyncio
@pytest.mark.parametrize("wrong", ["close hangs"], indirect=True)
async def test_a_close_that_hangs_is_killed(
    config: MooncakeConfig, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mooncake_process, "CLOSE_S", 0.3)

    async with opened(config) as tier:
        await put(tier, key(1), content(1, SIZE))


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_objects_wait_for_room_in_the_buffer(config: MooncakeConfig) -> None:
    small = MooncakeConfig(master=config.master, metadata=config.metadata, buffer_bytes=2 << 20)

    async with opened(small) as tier:
        writes = [tier.write(key(number), content(number, 900_000)) for number in range(20)]
        await asyncio.gather(*writes)
        for number in range(20):
            await expect(tier, key(number), content(number, 900_000))
        with pytest.raises(TierError, match="does not pass through a buffer of 2097152"):
            await tier.write(key(30), content(30, 2 << 20))


@pytest.mark.asyncio
@pytest.mark.usefixtures("fake_store")
async def test_the_numbers_remember_so_many_objects(
    config: MooncakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mooncake, "MAX_KNOWN", 3)

    async with opened(config) as tier:
        for number in range(5):
            await put(tier, key(number), content(number, 100))
        assert tier.stats.objects == 3
        await expect(tier, key(0), content(0, 100))
