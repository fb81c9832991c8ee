"""How runs end: by themselves, by a signal at any moment, by silence of a server or a device."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import Any

import pytest

from benchserver.check.residue import RESIDUE
from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict
from benchserver.client import discovery
from benchserver.client.connection import ConnectionLostError, NoAnswerError
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.zmq import ZmqConnection
from benchserver.config import RunConfig
from benchserver.errors import WorkCancelledError
from benchserver.geometry import Geometry
from benchserver.kv.pool import KvPool
from benchserver.options.memory import TransferChoice
from benchserver.stage import run as run_module
from benchserver.stage.heartbeat import Heartbeat
from benchserver.stage.outside import Outside
from benchserver.stage.pools import HostPools
from benchserver.stage.run import Run
from protocol.messages import Reply
from protocol.ops import Op
from tests.benchserver.stage.runs import Machine, RunMaker

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.asyncio
async def test_a_server_that_is_stopped_when_a_worker_registers_is_not_blamed(
    play: RunMaker, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """It was told that it does not serve this mode, or cannot map our memory."""
    call = ZmqConnection.call

    async def stop_at_register(self: ZmqConnection, op: Op, *args: Any, **options: Any) -> Reply:
        if op in (Op.REGISTER_KV_CACHE, Op.UNREGISTER_KV_CACHE, Op.NOOP):
            kind = ConnectionLostError if lost else NoAnswerError
            raise kind(op, "the connection was lost" if lost else "no answer within 1 s")
        return await call(self, op, *args, **options)

    async def silent(self: HttpApi) -> str:
        raise HttpFailedError("GET /version: no answer within 1 s")

    monkeypatch.setattr(ZmqConnection, "call", stop_at_register)
    monkeypatch.setattr(discovery, "read_version", known_version)
    monkeypatch.setattr(HttpApi, "version", silent)
    playing = play(651, None, transfer=TransferChoice.LMCACHE_DRIVEN)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    reason = "the connection was lost" if lost else "no answer within 1 s"
    said = "the server is gone" if lost else "the server no longer answers"
    assert text.startswith(f"{said}: rank 0: REGISTER_KV_CACHE: {reason}")
    assert result.ledger.tallies[RUN].verdict is (Verdict.INVALID if lost else Verdict.UNKNOWN)


async def known_version(*_: Any, **__: Any) -> str:
    return "0.5.6-embedded"


@pytest.mark.asyncio
async def test_a_stop_during_the_first_ping_leaves_nothing_undone(
    play: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequences, which had not begun, were a coroutine that nobody awaited: a warning."""
    pinging = threading.Event()

    async def hang(self: Heartbeat) -> None:
        pinging.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Heartbeat, "beat", hang)
    with warnings.catch_warnings(record=True) as caught:
        result = await play(1501, None).stopped(pinging.is_set)
        gc.collect()
    assert not [str(warning.message) for warning in caught]
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_leaving_at_once_releases_every_pool(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    leave = Run._leave

    async def release_first(self: Run) -> None:
        runs.append(self)
        self.release_segments()
        await leave(self)

    monkeypatch.setattr(Run, "_leave", release_first)
    await play(1001, machine, tp_size=2).one.execute()
    assert runs
    assert [pool.released for pool in machine.pools] == [True, True]


class Deaf(HostPools):
    """Pools that are being made until the run is cancelled, which their thread hears first."""

    begun: threading.Event

    def make(self, rank: int) -> KvPool:
        self.begun.set()
        assert self._cancel.wait(30)
        raise WorkCancelledError


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
@pytest.mark.asyncio
async def test_work_that_hears_of_the_end_before_the_loop_does_is_no_error(
    play: RunMaker, mode: str
) -> None:
    begun = threading.Event()

    def pools(
        config: RunConfig, geometry: Geometry, nonce: bytes, cancel: threading.Event
    ) -> HostPools:
        made = Deaf(config, geometry, nonce, cancel)
        made.begun = begun
        return made

    playing = play(1101, None, Outside(pools=pools), mode=mode)
    result = await playing.stopped(begun.is_set)
    assert result.interrupted
    assert (result.exit_code, result.verdict) == (1, Verdict.UNKNOWN)


@pytest.mark.asyncio
async def test_a_pool_that_comes_too_late_is_closed(play: RunMaker, machine: Machine) -> None:
    machine.making = threading.Event()
    playing = play(1201, machine)
    result = await playing.stopped(lambda: bool(machine.pools))
    assert result.interrupted
    (pool,) = machine.pools
    assert not pool.closed
    assert not playing.one.threads.idle_within(0.01)
    machine.making.set()
    assert playing.one.threads.idle_within(30)
    assert pool.closed


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_a_device_that_does_not_answer_does_not_hold_up_the_end(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_CLOSE_S", 0.1)
    machine.closing = threading.Event()
    playing = play(1301, machine, end=1)
    result = await asyncio.wait_for(playing.one.execute(), 20)
    assert result.verdict is Verdict.VALID
    assert [pool.closed for pool in machine.pools] == [False]
    machine.closing.set()
    assert playing.one.threads.idle_within(30)
    assert machine.pools[0].closed


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_a_stop_that_comes_while_all_is_cleaned_up_shortens_that(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_INTERRUPTED_CLEAN_UP_S", 0.1)
    cleaning = asyncio.Event()

    async def hang(self: Run) -> None:
        cleaning.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Run, "_clean_server", hang)
    playing = play(1401, machine, end=1)
    result = await asyncio.wait_for(playing.stopped(cleaning.is_set), 15)
    assert not result.interrupted
    assert result.ledger.tallies[RUN].verdict is Verdict.VALID
    (text,) = result.ledger.tallies[RESIDUE].texts
    assert text.endswith("cleaning up took too long")
