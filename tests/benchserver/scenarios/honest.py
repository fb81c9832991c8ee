"""A stage whose server is a script that keeps what it is given: real bytes, virtual time.

The script maps the workers' pools, as a server does in lmcache_driven mode, and copies whole chunks
to and from a dictionary.  Tests switch on what it should do otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from benchserver.check.verdict import Finding
from benchserver.client.http import HttpFailedError
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk
from benchserver.client.mapped import MappedMode
from benchserver.client.scripted import NEVER, Answer, ScriptedConnection
from benchserver.client.worker import Worker
from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.geometry import Geometry
from benchserver.history import Step
from benchserver.kv.host.pool import HostPool
from benchserver.kv.pattern import content_seed
from benchserver.result import ServerFacts
from benchserver.scenarios.baseline.config import BaselineConfig
from benchserver.stage.alive import AliveCheck
from benchserver.stage.book import Book
from benchserver.stage.condition import Condition
from benchserver.stage.connections import Connections
from benchserver.stage.meeting import Met
from benchserver.stage.stage import Crew, Stage
from benchserver.stage.traits import Traits
from benchserver.tasks import Finishing, Threads
from protocol.dialects import V056
from protocol.handles import CPU_EVENT_STUB
from protocol.keys import CacheKey
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.benchserver.stage.scripted import InlineThreads

SPEC = "(2,64,16,1,8):float16:2"
CHUNK_TOKENS = 32
TIMEOUT_NS = NS_PER_S
NONCE = "00ff00ff00"

Line = Callable[..., Any]


@dataclass
class HonestServer:
    """What the script knows.

    `answers` holds other lines for some operations; None: the call is never answered.
    `visible_after_ns` is how long after a STORE its chunks are found.
    """

    geometry: Geometry
    clock: VirtualClock
    pools: dict[int, HostPool] = field(default_factory=dict)
    stored: dict[tuple[Any, ...], tuple[int, Any]] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    answers: dict[Op, Line | None] = field(default_factory=dict)
    visible_after_ns: int = 0
    latency_ns: int = NS_PER_MS

    def script(self) -> dict[Op, Line]:
        """Return what is answered, each after the latency."""
        honest: dict[Op, Line] = {
            Op.NOOP: lambda: "OK",
            Op.LOOKUP: self.look_up,
            Op.QUERY_PREFETCH_STATUS: self.hits.__getitem__,
            Op.STORE: self.store,
            Op.RETRIEVE: self.retrieve,
            Op.FREE_LOOKUP_LOCKS: lambda *_: VOID,
            Op.END_SESSION: lambda *_: VOID,
        }
        return {op: self._late(op, line) for op, line in honest.items()}

    def _late(self, op: Op, line: Line) -> Line:
        def answer(*args: Any) -> Any:
            chosen = self.answers.get(op, line)
            if chosen is None:
                return NEVER
            return Answer(result=chosen(*args), after_ns=self.latency_ns)

        return answer

    def chunk_names(self, key: CacheKey, rank: int) -> list[tuple[Any, ...]]:
        step = self.geometry.chunk_tokens
        return [
            (key.model_name, key.cache_salt, rank, tuple(key.token_ids[: end + step]))
            for end in range(key.start, key.end, step)
        ]

    def look_up(self, key: CacheKey, _workers: int) -> Any:
        latest_ns = self.clock.now_ns() - self.visible_after_ns
        hit = 0
        for names in zip(*(self.chunk_names(key, r) for r in range(key.world_size)), strict=True):
            if not all(name in self.stored and self.stored[name][0] <= latest_ns for name in names):
                break
            hit += 1
        self.hits[key.request_id] = hit
        return VOID

    def store(self, key: CacheKey, instance: int, tables: Any, _event: bytes) -> Any:
        pool, now_ns = self.pools[instance], self.clock.now_ns()
        assert key.worker_id is not None
        names = self.chunk_names(key, key.worker_id)
        for name, blocks in zip(names, self._cut(tables[0]), strict=True):
            self.stored[name] = (now_ns, self._read(pool, blocks))
        return TransferResult(event=CPU_EVENT_STUB, ok=True)

    def retrieve(
        self, key: CacheKey, instance: int, tables: Any, _event: bytes, skip: int = 0
    ) -> Any:
        pool, spec = self.pools[instance], self.geometry.spec
        assert key.worker_id is not None
        left = skip - skip % spec.block_size
        names = self.chunk_names(key, key.worker_id)
        for name, blocks in zip(names, self._cut(tables[0]), strict=True):
            data, kept = self._read(pool, blocks), min(left, self.geometry.chunk_tokens)
            left -= kept
            data[:, kept:] = self.stored[name][1][:, kept:]
            pool.scatter_chunk(0, blocks, data.reshape(-1))
        return TransferResult(event=CPU_EVENT_STUB, ok=True)

    def _cut(self, table: Sequence[int]) -> list[list[int]]:
        step = self.geometry.blocks_per_chunk
        return [list(table[at : at + step]) for at in range(0, len(table), step)]

    def _read(self, pool: HostPool, blocks: Sequence[int]) -> Any:
        """Return a chunk as [plane and layer][token][bytes]."""
        out = np.empty(self.geometry.chunk_bytes, dtype=np.uint8)
        pool.gather_chunk(0, blocks, out)
        group = self.geometry.spec.groups[0]
        return out.reshape(2 * group.layers, self.geometry.chunk_tokens, -1)


class HonestHttp:
    """An HTTP API that knows the pools; `wrong` gives other digests, None no answer."""

    def __init__(self, server: HonestServer, *, wrong: bool | None = False) -> None:
        self._server = server
        self._wrong = wrong

    async def counters(self, _model_name: str) -> None:
        raise HttpFailedError("GET /metrics: refused")

    async def checksums(
        self, *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
    ) -> tuple[str, ...]:
        if self._wrong is None:
            raise HttpFailedError("POST /checksums: HTTP 500")
        pool, starts = self._server.pools[instance_id], range(0, len(block_ids), blocks_per_chunk)
        digests = (pool.chunk_digest(block_ids[at : at + blocks_per_chunk]) for at in starts)
        return tuple("lie" if self._wrong else digest for digest in digests)


class SilentHttp:
    """An HTTP API that does not answer."""

    async def counters(self, _model_name: str) -> None:
        raise HttpFailedError("GET /metrics: refused")


@dataclass
class Told:
    """A reporter that keeps what it is told."""

    steps: list[tuple[str, Step]] = field(default_factory=list)
    verdicts: list[tuple[str, Sequence[Finding]]] = field(default_factory=list)
    everything: list[tuple[str, object]] = field(default_factory=list)

    def note(self, text: str) -> None:
        raise AssertionError(f"a scenario does not say {text!r}")

    def step(self, label: str, step: Step) -> None:
        self.steps.append((label, step))
        self.everything.append((label, step))

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        self.verdicts.append((label, findings))
        self.everything.append((label, findings))


@dataclass
class Played:
    """A stage, and what stands behind it."""

    stage: Stage
    asked: BaselineConfig
    server: HonestServer
    told: Told
    connection: ScriptedConnection
    clock: VirtualClock

    async def close(self) -> None:
        await self.connection.close()


def build(config: RunConfig, pools: Sequence[HostPool], threads: Threads, traits: Traits) -> Played:
    """Return a stage with a worker for each pool; call inside the event loop."""
    engine = config.engine
    assert engine is not None
    clock, geometry = VirtualClock(), engine.geometry(CHUNK_TOKENS)
    server = HonestServer(geometry, clock)
    connection = ScriptedConnection(server.script(), V056, clock=clock, timeout_ns=TIMEOUT_NS)
    crews = tuple(
        _crew(engine, client, pools, connection, clock, threads)
        for client in range(len(pools) // engine.tp_size)
    )
    server.pools = {
        worker.instance_id: cast(HostPool, worker.pool) for crew in crews for worker in crew.workers
    }
    told = Told()
    book = Book(traits, told, clock)
    connections = Connections(clock=clock, ledger=book.ledger)
    connections.opened.append(connection)
    nobody = cast(Any, SilentHttp())
    met = Met(
        dialect=V056,
        connection=connection,
        http=nobody,
        condition=Condition(config.target, nobody, clock=clock, ledger=book.ledger),
        alive=AliveCheck(connection, None, clock),
    )
    stage = Stage(
        target=config.target,
        server=ServerFacts(
            rpc_url="tcp://script:1", http_url="http://script:2", transport="handle"
        ),
        met=met,
        nonce=NONCE,
        clock=clock,
        threads=threads,
        finishing=Finishing(),
        connections=connections,
        book=book,
        crews=crews,
    )
    return Played(stage, cast(BaselineConfig, config.own), server, told, connection, clock)


def _crew(
    engine: Engine,
    client: int,
    pools: Sequence[HostPool],
    connection: ScriptedConnection,
    clock: VirtualClock,
    threads: Threads,
) -> Crew:
    keys = KeyMaker(
        model_name=engine.model_name,
        world_size=engine.world_size,
        cache_salt=engine.cache_salt,
        readers=engine.readers_per_object,
    )
    first = client * engine.tp_size
    workers = tuple(
        _worker(engine, first + rank, rank, pools[first + rank], connection, clock, threads)
        for rank in range(engine.tp_size)
    )
    desk = LookupDesk(
        connection,
        keys,
        kv_ranks=[worker.kv_rank for worker in workers],
        tp_size=engine.tp_size,
        chunk_tokens=CHUNK_TOKENS,
        clock=clock,
        timeout_ns=TIMEOUT_NS,
    )
    return Crew(
        number=client,
        engine=engine,
        geometry=engine.geometry(CHUNK_TOKENS),
        workers=workers,
        desk=desk,
        keys=keys,
        cross_check=False,
        content_root=content_seed(engine.seed, engine.cache_salt),
    )


def _worker(
    engine: Engine,
    number: int,
    rank: int,
    pool: HostPool,
    connection: ScriptedConnection,
    clock: VirtualClock,
    threads: Threads,
) -> Worker:
    instance = 1000 + number
    mode = MappedMode(
        connection,
        pool,
        engine.spec,
        instance_id=instance,
        model_name=engine.model_name,
        world_size=engine.world_size,
        chunk_tokens=CHUNK_TOKENS,
        timeout_ns=TIMEOUT_NS,
        clock=clock,
        executor=threads,
    )
    return Worker(
        rank=rank,
        kv_rank=0 if engine.is_mla else rank,
        instance_id=instance,
        rpc=connection,
        pool=pool,
        mode=mode,
    )


@contextlib.contextmanager
def running_threads() -> Iterator[Threads]:
    """Give a stage threads that do work where it is asked for: no clock moves meanwhile."""
    threads = InlineThreads()
    try:
        yield threads
    finally:
        threads.shutdown(wait=True)
