"""Runs of the baseline against an embedded server, with pools on GPUs that are not there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from benchserver.check.verdict import Finding
from benchserver.clock import RealClock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.errors import FatalError
from benchserver.geometry import Geometry
from benchserver.history import Step
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.placement import RankDevice, device_numbers
from benchserver.kv.pool import EventError, KvPool
from benchserver.result import RunResult
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.scenarios.baseline.scenario import Baseline
from benchserver.shmnames import segment_name
from benchserver.stage.outside import Outside
from benchserver.stage.pools import Pools, rank_contents
from benchserver.stage.run import Run
from protocol.handles import CudaHandle
from tests.mitm.running import Urls

MakeConfig = Callable[..., RunConfig]
MakeEngine = Callable[..., Engine]

SPEC = "(2,128,16,2,8):float16:2"
MLA = "(1,128,16,1,8):float16:2"
LANDS_AFTER_S = 0.002
EVENT = b"e" * 64


class FarPool(HostPool):
    """A pool whose data lands some time after the reply; `machine` is where it lies."""

    asynchronous = True
    machine: Machine
    waits: list[bytes]
    released = False
    closed = False

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        assert timeout_ns == 10_000_000_000
        self.waits.append(handle)
        time.sleep(LANDS_AFTER_S)
        if self.machine.trouble:
            raise EventError(self.machine.trouble)

    def release(self) -> None:
        self.released = True
        super().release()

    def close(self) -> None:
        self.machine.closing.wait(30)
        super().close()
        self.closed = True


class BrokenPool(FarPool):
    """A pool on a device that does not keep what is written to it."""

    def fill(self, *_: Any, **__: Any) -> None:
        """Write nothing."""


class FailingPool(FarPool):
    """A pool on a device that fails when it is looked at."""

    def wrong_guards(self) -> Any:
        raise FatalError("cuda:0: an illegal memory access was encountered")


class UnnamedPool(FarPool):
    """A pool that a server cannot open: it has no name when it is described."""

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Any]:
        yield self._handles(hnd=hnd)


class AlienPool(FarPool):
    """A pool whose description the protocol cannot carry."""

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Any]:
        share: Any = (0, b"e" * 441, 1 << 30, 0, b"/torch_1_2_3", 0, b"e" * 64, True)
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


def let_go() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Machine:
    """Two GPUs that are not there.

    `trouble` is what an event says that does not tell; pools are closed once `closing` is set, and
    with `making` they are handed over after a cancel, once that is set.
    """

    kind: type[FarPool] = FarPool
    refused: str = ""
    trouble: str = ""
    closing: threading.Event = field(default_factory=let_go)
    making: threading.Event | None = None
    pools: list[FarPool] = field(default_factory=list)
    made_in: set[int] = field(default_factory=set)

    def outside(self) -> Outside:
        """Return what a run with --mode gpu takes from outside on this machine."""
        return Outside(pools=self._pools)

    def _pools(
        self,
        engine: Engine,
        geometry: Geometry,
        nonce: bytes,
        cancel: threading.Event,
        _workers: int,
    ) -> Pools:
        return FarPools(self, engine, geometry, cancel)


class FarPools:
    """Pools on the GPUs of a machine."""

    slow_kernels = "no compiler"

    def __init__(
        self, machine: Machine, engine: Engine, geometry: Geometry, cancel: threading.Event
    ) -> None:
        self._machine = machine
        self._engine = engine
        self._geometry = geometry
        self._cancel = cancel
        self.devices: list[RankDevice] = []

    def require(self) -> None:
        self._machine.made_in.add(threading.get_ident())
        if self._machine.refused:
            raise FatalError(self._machine.refused)
        self.devices = [
            RankDevice(rank=rank, number=number, name="FAKE", uuid=f"uuid-{number}")
            for rank, number in enumerate(device_numbers(self._engine.tp_size, 2))
        ]

    def make(self, rank: int) -> KvPool:
        engine, machine = self._engine, self._machine
        machine.made_in.add(threading.get_ident())
        pool = machine.kind(
            SharedSegment(place_tensors(engine.spec)[1], self._cancel),
            rank_contents(engine, self._geometry)[rank],
            shm_name=segment_name("00ff", rank),
            cancel=self._cancel,
        )
        pool.waits, pool.machine = [], machine
        machine.pools.append(pool)
        if machine.making is not None:
            self._cancel.wait(30)
            machine.making.wait(30)
        return pool


@dataclass
class Notes:
    """A reporter that keeps all."""

    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, label: str, step: Step) -> None:
        self.steps.append(step)
        self.told.append(f"step of {label}")

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        self.told.append(f"verdict on {label}")


@dataclass
class Playing:
    """One run of the baseline, and the ways to end it."""

    one: Run
    notes: Notes
    stop: asyncio.Event
    cancel: threading.Event

    async def stopped(self, when: Callable[[], bool]) -> RunResult:
        """Run, ask for the end as soon as `when` says so, and stand still for a moment then."""
        ended = asyncio.ensure_future(self.one.execute())
        while not when():  # noqa: ASYNC110 - what threads do is no event of the loop
            await asyncio.sleep(0.01)
        self.stop.set()
        self.cancel.set()
        time.sleep(0.2)  # noqa: ASYNC251 - as a terminal does that is slow to take a line
        return await ended


class RunMaker:
    """Makes runs against one server."""

    def __init__(self, server: Urls, make_config: MakeConfig) -> None:
        self._server = server
        self._make_config = make_config

    def __call__(
        self, seed: int, machine: Machine | None, outside: Outside | None = None, **changes: Any
    ) -> Playing:
        """Return a run with --mode gpu on a machine, or one on the host."""
        config = self._make_config(
            **{
                "rpc_url": self._server.rpc_url,
                "http_url": self._server.http_url,
                "spec": SPEC,
                "interval_s": 0.0,
                "seed": seed,
                "mode": "cpu" if machine is None else "gpu",
                **changes,
            }
        )
        notes, stop, cancel = Notes(), asyncio.Event(), threading.Event()
        if machine is not None:
            outside = machine.outside()
        one = Run(
            config,
            Baseline(cast(BaselineConfig, config.own)),
            notes,
            clock=RealClock(),
            stop=stop,
            cancel=cancel,
            outside=outside,
        )
        return Playing(one, notes, stop, cancel)
