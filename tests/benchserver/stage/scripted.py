"""A run in virtual time: its server is a script, its threads do their work at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from benchserver.check.verdict import Check, Finding, passed
from benchserver.client.connection import Connector
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.scripted import ScriptedConnection, ScriptedConnector
from benchserver.clock import Clock, VirtualClock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.config.target import Target
from benchserver.geometry import Geometry
from benchserver.history import Probe
from benchserver.result import RunResult
from benchserver.stage.outside import Outside
from benchserver.stage.run import Run
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions, Traits
from benchserver.tasks import Threads
from protocol.health import Health
from protocol.httpapi import ServerStatus
from protocol.messages import VOID
from protocol.ops import Op
from tests.benchserver.stage.runs import Notes
from tests.inline import InlineExecutor

T = TypeVar("T")

CHUNK_TOKENS = 64
SPEC = "(2,128,16,2,8):float16:2"

WORKS = Check("works", "it works")
ASIDE = Check("aside", "something beside it")
ASKED = Probe("asked")

WELL = ServerStatus(
    chunk_size=CHUNK_TOKENS,
    active_sessions=0,
    read_locked=0,
    write_locked=0,
    handle_instances=frozenset(),
    engine_instances=frozenset(),
    health=Health(said=1),
)


class InlineThreads(Threads):
    """Threads that do work at once, where it is asked for: no clock moves meanwhile."""

    def __init__(self) -> None:
        super().__init__(1)

    submit = InlineExecutor.submit


@dataclass
class Server:
    """What a run meets: answers by script over RPC, and over HTTP what the fields say.

    By HTTP it lists who registered over RPC and did not unregister.
    """

    script: dict[Op, Any] = field(default_factory=dict)
    version: str | Exception = "0.5.6"
    mode: str = "auto"
    status: ServerStatus | Exception = WELL
    configuration: dict[str, Any] | Exception = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    registered: set[int] = field(default_factory=set)
    http_closed: int = 0
    connectors: list[ScriptedConnector] = field(default_factory=list)

    def outside(self) -> Outside:
        """Return what a run takes from outside, pools on the host excepted."""
        return Outside(reach=self._reach, http=self._http, threads=lambda *_: InlineThreads())

    @property
    def connections(self) -> list[ScriptedConnection]:
        return self.connectors[0].connections

    @property
    def ops(self) -> list[Op]:
        """Return the operations of the run's first connection."""
        return self.connections[0].ops

    async def _reach(self, _target: Target, clock: Clock) -> Connector:
        script = {
            Op.NOOP: "OK",
            Op.GET_CHUNK_SIZE: CHUNK_TOKENS,
            Op.PING: True,
            Op.REGISTER_KV_CACHE: self._register,
            Op.UNREGISTER_KV_CACHE: self._unregister,
            **self.script,
        }
        connector = ScriptedConnector(script, clock=clock, timeout_ns=10**9)
        self.connectors.append(connector)
        return connector

    def _http(self, _target: Target) -> HttpApi:
        return cast(HttpApi, ScriptedHttp(self))

    def _register(self, instance_id: int, *_: Any) -> Any:
        self.registered.add(instance_id)
        return VOID

    def _unregister(self, instance_id: int) -> Any:
        self.registered.discard(instance_id)
        return VOID


class ScriptedHttp:
    """The HTTP API of a server."""

    routes: Any = None

    def __init__(self, server: Server) -> None:
        self._server = server

    async def version(self) -> str:
        return said(self._server.version)

    async def transfer_mode(self) -> str:
        return self._server.mode

    async def configuration(self) -> dict[str, Any]:
        return said(self._server.configuration)

    async def status(self) -> ServerStatus:
        instances = frozenset(self._server.registered)
        return replace(said(self._server.status), handle_instances=instances)

    async def failures(self) -> dict[str, int]:
        return {}

    async def close(self) -> None:
        self._server.http_closed += 1


def said(answer: T | Exception) -> T:
    if isinstance(answer, Exception):
        raise answer
    return answer


NO_HTTP = HttpFailedError("GET /status: refused")


@dataclass
class Play:
    """A scenario that does what it is told, unit by unit."""

    act: Callable[[Stage], Awaitable[None]]
    workers: bool = True
    clients: int = 1
    in_flight: int = 1
    at_once: int = 1
    owes_growth: bool = False
    fits: Callable[[Engine, Geometry, int], None] | None = None
    omitted: Omissions = field(default_factory=Omissions)
    seen: list[Stage] = field(default_factory=list)

    @property
    def traits(self) -> Traits:
        return Traits(
            name="play",
            unit="act",
            checks=(WORKS, ASIDE),
            probes=(ASKED,),
            workers=self.workers,
            clients=self.clients,
            in_flight=self.in_flight,
            at_once=self.at_once,
            owes_growth=self.owes_growth,
            fits=self.fits,
        )

    def omissions(self, stage: Stage) -> Omissions:
        self.seen.append(stage)
        return self.omitted

    async def play(self, stage: Stage) -> None:
        assert self.seen == [stage]
        await self.act(stage)


async def two_acts(stage: Stage) -> None:
    """Two units in which all is well."""
    for number in range(2):
        await stage.conclude(f"act={number}", GOOD, probes=[ASKED])


GOOD: Sequence[Finding] = (passed(WORKS), passed(ASIDE))


def run_of(
    config: RunConfig, play: Play, server: Server, stop: asyncio.Event | None = None
) -> tuple[Run, Notes]:
    """Return a run of a play against a server."""
    notes = Notes()
    one = Run(
        config,
        play,
        notes,
        clock=server.clock,
        stop=stop or asyncio.Event(),
        cancel=threading.Event(),
        outside=server.outside(),
    )
    return one, notes


async def played(config: RunConfig, play: Play, server: Server) -> RunResult:
    """Return the result of a run of a play against a server."""
    return await run_of(config, play, server)[0].execute()
