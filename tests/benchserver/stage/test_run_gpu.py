"""Whole runs in gpu mode without a GPU: pools on the host that behave as pools on a device do.

The server is our embedded one, on the host; where a test says so, its replies get the events that
a server of GPUs would send.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchserver.check import transfers
from benchserver.check.residue import RESIDUE
from benchserver.check.run import RUN
from benchserver.check.verdict import Finding, Verdict
from benchserver.client import discovery
from benchserver.client.connection import ConnectionLostError, NoAnswerError
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.zmq import ZmqConnection
from benchserver.clock import RealClock
from benchserver.config import RunConfig, TransferChoice
from benchserver.errors import FatalError, WorkCancelledError
from benchserver.history import Step, TransferRecord
from benchserver.kv.gpu import making
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.placement import RankDevice, device_numbers
from benchserver.kv.pool import EventError
from benchserver.result import RunResult
from benchserver.scenarios.baseline.gate import Gate
from benchserver.scenarios.baseline.series import RETRIEVE, RETRIEVE_REPLY, STORE, STORE_REPLY
from benchserver.shmnames import segment_name
from benchserver.stage import run as run_module
from benchserver.stage.heartbeat import Heartbeat
from benchserver.stage.run import Run
from benchserver.stage.workforce import Workforce
from protocol.handles import CudaHandle
from protocol.messages import Reply, TransferResult
from protocol.ops import Op
from tests.mitm.running import Urls
from tests.mitm.servers import embedded_server

pytestmark = pytest.mark.usefixtures("leak_free")

MakeConfig = Callable[..., RunConfig]

SPEC = "(2,128,16,2,8):float16:2"
MLA = "(1,128,16,1,8):float16:2"
EVENT = b"e" * 64
LANDS_AFTER_S = 0.002


class FarPool(HostPool):
    """A pool whose data lands some time after the reply."""

    asynchronous = True
    kernels_note = "no compiler"
    trouble = ""
    waits: list[bytes]
    released = False
    closed = False
    closing = threading.Event()
    closing.set()

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        assert timeout_ns == 10_000_000_000
        self.waits.append(handle)
        time.sleep(LANDS_AFTER_S)
        if self.trouble:
            raise EventError(self.trouble)

    def release(self) -> None:
        self.released = True
        super().release()

    def close(self) -> None:
        self.closing.wait(30)
        super().close()
        self.closed = True


class BrokenPool(FarPool):
    """A pool on a device that does not keep what is written to it."""

    def fill(self, *_: Any, **__: Any) -> None:
        """Write nothing."""


@dataclass
class Notes:
    """A reporter that keeps all."""

    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, label: str, step: Step) -> None:
        self.steps.append(step)

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        pass


@dataclass
class Machine:
    """Two GPUs that are not there."""

    kind: type[FarPool] = FarPool
    pools: list[FarPool] = field(default_factory=list)
    made_in: set[int] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    making: threading.Event | None = None

    def assign(self, ranks: int, nbytes: int) -> list[RankDevice]:
        self.made_in.add(threading.get_ident())
        return [
            RankDevice(rank=rank, number=number, name="FAKE", uuid=f"uuid-{number}")
            for rank, number in enumerate(device_numbers(ranks, 2))
        ]

    def make(
        self,
        spec: Any,
        patterns: Any,
        device: RankDevice,
        *,
        ipc: str,
        cancel: Any,
        lanes: Any,
        **parts: Any,
    ) -> FarPool:
        self.made_in.add(threading.get_ident())
        self.lanes.add(id(lanes))
        segment = SharedSegment(place_tensors(spec)[1], cancel)
        name = segment_name("00ff", device.rank)
        pool = self.kind(segment, spec, patterns, shm_name=name, cancel=cancel, **parts)
        pool.waits = []
        if device.rank:
            pool.kernels_note = f"another reason, of rank {device.rank}"
        self.pools.append(pool)
        if self.making is not None:
            cancel.wait(30)
            self.making.wait(30)
        return pool


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(making, "assign_devices", made.assign)
    monkeypatch.setattr(making, "make_pool", made.make)
    return made


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every reply to STORE and RETRIEVE that says True hold an event."""
    call = ZmqConnection.call

    async def call_with_event(self: ZmqConnection, op: Op, *args: Any, **options: Any) -> Reply:
        reply = await call(self, op, *args, **options)
        if op in (Op.STORE, Op.RETRIEVE) and reply.result.ok:
            return reply._replace(result=TransferResult(event=EVENT, ok=True))
        return reply

    monkeypatch.setattr(ZmqConnection, "call", call_with_event)


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with embedded_server() as running:
        yield running.urls


def run(
    server: Urls, make_config: MakeConfig, seed: int, **changes: Any
) -> tuple[RunResult, Notes]:
    config = make_config(
        **{
            **{"rpc_url": server.rpc_url, "http_url": server.http_url, "spec": SPEC},
            **{"interval_s": 0.0, "seed": seed, "mode": "gpu", **changes},
        }
    )
    notes = Notes()

    async def main() -> RunResult:
        stop, cancel = asyncio.Event(), threading.Event()
        return await Run(
            config, Gate(config), notes, clock=RealClock(), stop=stop, cancel=cancel
        ).execute()

    return asyncio.run(main()), notes


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(("spec", "tp_size"), [(SPEC, 1), (SPEC, 3), (MLA, 2)])
def test_a_run_is_proven_and_its_latencies_are_those_of_landed_data(
    server: Urls, make_config: MakeConfig, machine: Machine, spec: str, tp_size: int
) -> None:
    result, notes = run(server, make_config, 101 + tp_size, spec=spec, tp_size=tp_size)
    texts = {check: tally.texts for check, tally in result.ledger.tallies.items() if tally.texts}
    assert result.verdict is Verdict.VALID, texts
    assert [device.number for device in result.devices] == device_numbers(tp_size, 2)
    moved = [step for step in notes.steps if isinstance(step, TransferRecord)]
    assert all(0 < step.replied_ns < step.latency_ns for step in moved)
    assert all(step.latency_ns > LANDS_AFTER_S * 1e9 for step in moved)
    # Two sequences, one of them retrieved in part too.
    assert len(machine.pools[0].waits) == 5
    assert all(set(pool.waits) == {EVENT} for pool in machine.pools)
    for name, reply in ((STORE, STORE_REPLY), (RETRIEVE, RETRIEVE_REPLY)):
        landed, replied = (result.measures.latencies[n].summary() for n in (name, reply))
        assert landed is not None
        assert replied is not None
        assert landed.count == replied.count
        assert replied.max_ms < landed.max_ms
    assert "(mode=gpu)" in notes.notes[0]
    assert "KV pool of rank 0 on cuda:0, FAKE, uuid-0" in notes.notes
    assert any(note.endswith("latencies: no compiler") for note in notes.notes)
    # Pinned memory does not grow with the ranks.
    assert len(machine.lanes) == 1
    # What takes seconds does not hold up the event loop.
    assert threading.get_ident() not in machine.made_in


def test_a_server_that_answers_as_on_the_host_fails(
    server: Urls, make_config: MakeConfig, machine: Machine
) -> None:
    result, _ = run(server, make_config, 201)
    tally = result.ledger.tallies[transfers.STORE]
    assert tally.verdict is Verdict.INVALID
    assert tally.texts[0] == (
        "seq=0 rank=0: STORE: replied True, but with an event of 15 bytes, expected 64: a client "
        "cannot know when the data lands"
    )
    assert result.ledger.tallies[RESIDUE].passed
    assert machine.pools[0].waits == []


@pytest.mark.usefixtures("events")
def test_an_event_that_does_not_tell_leaves_the_run_unproven(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FarPool, "trouble", "the server's event did not complete within 10 s")
    result, _ = run(server, make_config, 301)
    tally = result.ledger.tallies[transfers.STORE]
    assert (tally.verdict, tally.failed, tally.unproven) == (Verdict.UNKNOWN, 0, 2)
    assert tally.texts[0] == (
        "seq=0 rank=0: STORE: replied True, but when its data lands is unknown: the server's event "
        "did not complete within 10 s"
    )
    assert result.exit_code == 1


@pytest.mark.usefixtures("events")
def test_engine_driven_runs_wait_for_no_event(
    server: Urls, make_config: MakeConfig, machine: Machine
) -> None:
    engine = TransferChoice.ENGINE_DRIVEN
    result, notes = run(server, make_config, 401, transfer=engine)
    assert result.verdict is Verdict.VALID
    assert machine.pools[0].waits == []
    moved = [step for step in notes.steps if isinstance(step, TransferRecord)]
    assert moved
    assert all(step.replied_ns == step.latency_ns for step in moved)
    assert result.measures.latencies[STORE_REPLY].summary() is None


def test_a_device_that_does_not_keep_what_is_written_ends_the_run(
    server: Urls, make_config: MakeConfig, machine: Machine
) -> None:
    machine.kind = BrokenPool
    result, _ = run(server, make_config, 501)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: 128 of 128 pages that were just written to cuda:0 (uuid-0)")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("cuda_ipc", "said", "unsaid"),
    [("torch", "(--ipc=host), or use --cuda-ipc driver", "?"), ("driver", "handles)", "--ipc=")],
)
def test_a_registration_without_an_answer_says_what_a_server_needs(
    server: Urls,
    make_config: MakeConfig,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    cuda_ipc: str,
    said: str,
    unsaid: str,
) -> None:
    @contextlib.contextmanager
    def unmappable(self: HostPool, *, hnd: bool = False) -> Iterator[Sequence[Any]]:
        # Not named: the server finds no such segment.
        yield self._handles(hnd=hnd)

    monkeypatch.setattr(HostPool, "exported", unmappable)
    monkeypatch.setattr(FarPool, "wait_event", None)
    result, _ = run(server, make_config, 601, cuda_ipc=cuda_ipc, timeout_s=1.0, tp_size=1)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: REGISTER_KV_CACHE: no answer within 1 s; it cannot map our")
    assert "see the GPU uuid-0, and be able to open our CUDA IPC handles" in text
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize("lost", [False, True])
def test_a_server_that_is_stopped_when_a_worker_registers_is_not_blamed(
    server: Urls, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, lost: bool
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
    result, _ = run(server, make_config, 651, mode="cpu", transfer=TransferChoice.LMCACHE_DRIVEN)
    (text,) = result.ledger.tallies[RUN].texts
    reason = "the connection was lost" if lost else "no answer within 1 s"
    said = "the server is gone" if lost else "the server no longer answers"
    assert text.startswith(f"{said}: rank 0: REGISTER_KV_CACHE: {reason}")
    assert result.ledger.tallies[RUN].verdict is (Verdict.INVALID if lost else Verdict.UNKNOWN)


async def known_version(*_: Any, **__: Any) -> str:
    return "0.5.6-embedded"


def test_a_stop_during_the_first_ping_leaves_nothing_undone(
    server: Urls, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequences, which had not begun, were a coroutine that nobody awaited: a warning."""
    pinging = threading.Event()

    async def hang(self: Heartbeat) -> None:
        pinging.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Heartbeat, "beat", hang)
    config = make_config(
        rpc_url=server.rpc_url, http_url=server.http_url, spec=SPEC, seed=1501, mode="cpu"
    )

    async def main() -> RunResult:
        stop, cancel = asyncio.Event(), threading.Event()
        one = Run(config, Gate(config), Notes(), clock=RealClock(), stop=stop, cancel=cancel)
        return await stopped(one, stop, cancel, pinging.is_set)

    with warnings.catch_warnings(record=True) as caught:
        result = asyncio.run(main())
        gc.collect()
    assert not [str(warning.message) for warning in caught]
    assert result.verdict is Verdict.UNKNOWN


def test_older_releases_are_refused_before_anything_is_allocated(
    server: Urls, make_config: MakeConfig, machine: Machine
) -> None:
    with embedded_server("--as", "0.5.5", "--supported-transfer-mode", "lmcache_driven") as old:
        result, _ = run(old.urls, make_config, 701)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("release 0.5.5 takes CUDA memory described in a pickle")
    assert machine.pools == []


def test_no_room_on_the_device_ends_the_run_before_it_is_registered(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(ranks: int, nbytes: int) -> Any:
        raise FatalError(f"GPU memory: {ranks * nbytes} bytes asked for, 5 bytes free on cuda:0")

    monkeypatch.setattr(making, "assign_devices", refuse)
    result, _ = run(server, make_config, 801)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.endswith("5 bytes free on cuda:0")
    assert machine.pools == []


@pytest.mark.usefixtures("events")
def test_a_device_that_fails_in_a_sequence_does_not_leave_anything_on_the_server(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise FatalError("cuda:0: an illegal memory access was encountered")

    monkeypatch.setattr(FarPool, "verify_canaries", refuse)
    result, _ = run(server, make_config, 901)
    (text,) = result.ledger.tallies[RUN].texts
    assert text == "cuda:0: an illegal memory access was encountered"
    residue = result.ledger.tallies[RESIDUE]
    assert (residue.passed, residue.failed, residue.unproven) == (2, 0, 0)


@pytest.mark.usefixtures("events")
def test_leaving_at_once_releases_every_pool(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    leave = Run._leave

    async def release_first(self: Run) -> None:
        runs.append(self)
        self.release_segments()
        await leave(self)

    monkeypatch.setattr(Run, "_leave", release_first)
    run(server, make_config, 1001, tp_size=2)
    assert runs
    assert [pool.released for pool in machine.pools] == [True, True]


async def stopped(
    one: Run, stop: asyncio.Event, cancel: threading.Event, when: Callable[[], bool]
) -> RunResult:
    """Run, ask for the end as soon as `when` says so, and stand still for a moment then."""
    ended = asyncio.ensure_future(one.execute())
    while not when():  # noqa: ASYNC110 - what threads do is no event of the loop
        await asyncio.sleep(0.01)
    stop.set()
    cancel.set()
    time.sleep(0.2)  # noqa: ASYNC251 - as a terminal does that is slow to take a line
    return await ended


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
def test_work_that_hears_of_the_end_before_the_loop_does_is_no_error(
    server: Urls,
    make_config: MakeConfig,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    begun = threading.Event()

    def hear(self: Workforce, *_: Any) -> Any:
        begun.set()
        assert self._cancel.wait(30)
        raise WorkCancelledError

    monkeypatch.setattr(Workforce, "_make_pool", hear)
    config = make_config(
        rpc_url=server.rpc_url, http_url=server.http_url, spec=SPEC, seed=1101, mode=mode
    )

    async def main() -> RunResult:
        stop, cancel = asyncio.Event(), threading.Event()
        one = Run(config, Gate(config), Notes(), clock=RealClock(), stop=stop, cancel=cancel)
        return await stopped(one, stop, cancel, begun.is_set)

    result = asyncio.run(main())
    assert result.interrupted
    assert (result.exit_code, result.verdict) == (1, Verdict.UNKNOWN)


def test_a_pool_that_comes_too_late_is_closed(
    server: Urls, make_config: MakeConfig, machine: Machine
) -> None:
    machine.making = threading.Event()
    config = make_config(
        rpc_url=server.rpc_url, http_url=server.http_url, spec=SPEC, seed=1201, mode="gpu"
    )

    async def main() -> Run:
        stop, cancel = asyncio.Event(), threading.Event()
        one = Run(config, Gate(config), Notes(), clock=RealClock(), stop=stop, cancel=cancel)
        result = await stopped(one, stop, cancel, lambda: bool(machine.pools))
        assert result.interrupted
        return one

    one = asyncio.run(main())
    (pool,) = machine.pools
    assert not pool.closed
    assert not one.threads.idle_within(0.01)
    machine.making.set()
    assert one.threads.idle_within(30)
    assert pool.closed


@pytest.mark.usefixtures("events")
def test_a_device_that_does_not_answer_does_not_hold_up_the_end(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_CLOSE_S", 0.1)
    monkeypatch.setattr(FarPool, "closing", threading.Event())
    started = time.monotonic()
    result, _ = run(server, make_config, 1301, end=1)
    assert time.monotonic() - started < 20
    assert result.verdict is Verdict.VALID
    assert [pool.closed for pool in machine.pools] == [False]
    FarPool.closing.set()
    deadline = time.monotonic() + 30
    while not machine.pools[0].closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert machine.pools[0].closed


@pytest.mark.usefixtures("events")
def test_a_stop_that_comes_while_all_is_cleaned_up_shortens_that(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_INTERRUPTED_CLEAN_UP_S", 0.1)
    cleaning = asyncio.Event()

    async def hang(self: Run) -> None:
        cleaning.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Run, "_clean_server", hang)
    config = make_config(
        rpc_url=server.rpc_url, http_url=server.http_url, spec=SPEC, seed=1401, mode="gpu", end=1
    )

    async def main() -> RunResult:
        stop, cancel = asyncio.Event(), threading.Event()
        one = Run(config, Gate(config), Notes(), clock=RealClock(), stop=stop, cancel=cancel)
        return await asyncio.wait_for(stopped(one, stop, cancel, cleaning.is_set), 15)

    result = asyncio.run(main())
    assert not result.interrupted
    assert result.ledger.tallies[RUN].verdict is Verdict.VALID
    (text,) = result.ledger.tallies[RESIDUE].texts
    assert text.endswith("cleaning up took too long")


def test_a_descriptor_that_cannot_be_sent_ends_the_run_in_one_line(
    server: Urls, make_config: MakeConfig, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def exported(self: HostPool, *, hnd: bool = False) -> Iterator[Sequence[Any]]:
        share = (0, b"e" * 441, 1 << 30, 0, b"/torch_1_2_3", 0, b"e" * 64, True)
        yield [
            CudaHandle(
                share=share,
                dtype=handle.dtype,
                shape=handle.shape,
                stride=handle.stride,
                device_uuid="u",
            )
            for handle in self._handles(hnd=hnd)
        ]

    monkeypatch.setattr(HostPool, "exported", exported)
    result, _ = run(server, make_config, 1501)
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith("rank 0: its registration cannot be sent: handle: handle[1] is b'eee")
    assert result.exit_code == 1
