"""The process of the library, seen from the tier: refused, crashed, stuck, ended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from benchserver.errors import FatalError, HarnessError, UsageError
from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.mooncake import process as mooncake_process
from benchserver.refserver.tiers.mooncake import tier as mooncake
from benchserver.refserver.tiers.mooncake.tier import MooncakeTier
from benchserver.refserver.tiers.tier import TierError
from tests.benchserver.refserver.tiers.conformance import (
    content,
    get,
    key,
    put,
)
from tests.benchserver.refserver.tiers.mooncake.opening import opened
from tests.oddpeers import closed

pytestmark = pytest.mark.usefixtures("leak_free")
SIZE = 5000


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
