"""Events order what two processes do to the same memory, and these tests can see a race.

The late writer fills blocks slowly and STOREs them at once: the server must wait for its event and
store the new bytes.  Its twin sends an event from before the fill: the server must be seen to store
other bytes, or the first test would prove nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benchserver.client.connection import Connection, NoAnswerError
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk, OpenRequest
from benchserver.client.mapped import MappedMode
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_S, RealClock
from benchserver.kv.blocks import BlockPlan, lease_plan
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.kv.layout import place_tensors
from benchserver.kv.owners import Candidate
from benchserver.kv.pattern import chunk_digests, content_seed
from benchserver.kv.pool import EventError
from benchserver.kv.verify import verify, verify_canaries
from benchserver.load.workload import sequence_tokens
from benchserver.tasks import in_thread
from protocol.dialects import V056
from protocol.keys import CacheKey
from protocol.messages import Event, TransferResult
from protocol.ops import Op
from shapespec import parse_shape_spec
from tests.mitm.running import Urls

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

SPEC = parse_shape_spec("(2,128,16,8,128):float16:4")
TOKENS = 512
CALL_WITHIN_NS = 30 * NS_PER_S
VISIBLE_WITHIN_S = 10.0
SLEEP_CYCLES = 1_500_000_000
"""Of the SM clock: three quarters of a second at 2 GHz."""

SLEEP_AT_LEAST_NS = 3 * NS_PER_S // 10
"""Less than the sleep at any clock that a GPU has, far more than a transfer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A worker with a CUDA pool, registered with a server."""

    rpc: Connection
    pool: Any
    mode: MappedMode
    desk: LookupDesk
    keys: KeyMaker
    executor: ThreadPoolExecutor
    instance_id: int
    chunk_tokens: int
    plan: BlockPlan
    surprises: list[Event]

    @property
    def end(self) -> int:
        return TOKENS // self.chunk_tokens * self.chunk_tokens

    @property
    def chunks(self) -> int:
        return TOKENS // self.chunk_tokens

    def key(self, request: OpenRequest) -> CacheKey:
        return self.keys.key(request.tokens, end=self.end, request_id=request.request_id, kv_rank=0)

    async def open(self, tokens: list[int], name: str) -> tuple[OpenRequest, int]:
        """Open a request and look it up."""
        request_id = f"events-{self.instance_id}-{name}"
        request = self.desk.open(tokens, end=self.end, request_id=request_id)
        return request, (await self.desk.lookup(request)).chunks

    async def open_visible(self, tokens: list[int]) -> OpenRequest:
        """Look up until everything is there."""
        deadline = time.monotonic() + VISIBLE_WITHIN_S
        attempt = 0
        while True:
            attempt += 1
            request, hits = await self.open(tokens, f"warm-{attempt}")
            if hits == self.chunks:
                return request
            await self.desk.settle(request)
            assert time.monotonic() < deadline, f"{hits}/{self.chunks} chunks are visible"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def rigged(server: Urls, seed: int) -> AsyncIterator[Rig]:
    """Register a worker as a run does, and take everything back at the end."""
    from benchserver.kv.gpu.making import assign_devices, make_pool

    async with AsyncExitStack() as cleanup:
        executor = cleanup.enter_context(ThreadPoolExecutor(4))
        clock, surprises = RealClock(), list[Event]()
        connector = ZmqConnector(server.rpc_url, clock=clock, timeout_ns=CALL_WITHIN_NS)
        cleanup.push_async_callback(connector.close)
        rpc = connector.open(V056, surprises.append)
        chunk_tokens = int((await rpc.call(Op.GET_CHUNK_SIZE)).result)
        root, blocks_per_chunk = content_seed(seed, ""), chunk_tokens // SPEC.block_size
        patterns = group_patterns(root, SPEC, blocks_per_chunk)
        pool = make_pool(
            PoolContent(spec=SPEC, patterns=patterns, rank=0, ranks=1),
            assign_devices(1, place_tensors(SPEC)[1])[0],
            ipc="torch",
            cancel=threading.Event(),
        )
        cleanup.callback(pool.close)
        instance_id = secrets.randbits(40)
        mode = MappedMode(
            rpc,
            pool,
            SPEC,
            instance_id=instance_id,
            model_name="bench-server-events",
            world_size=1,
            chunk_tokens=chunk_tokens,
            timeout_ns=CALL_WITHIN_NS,
            clock=clock,
            executor=executor,
        )
        keys = KeyMaker(model_name="bench-server-events", world_size=1, cache_salt="", readers=1)
        desk = LookupDesk(
            rpc,
            keys,
            kv_ranks=[0],
            tp_size=1,
            chunk_tokens=chunk_tokens,
            clock=clock,
            timeout_ns=CALL_WITHIN_NS,
        )
        await mode.register()
        cleanup.push_async_callback(mode.unregister, timeout_ns=CALL_WITHIN_NS)
        yield Rig(
            rpc=rpc,
            pool=pool,
            mode=mode,
            desk=desk,
            keys=keys,
            executor=executor,
            instance_id=instance_id,
            chunk_tokens=chunk_tokens,
            plan=lease_plan(
                num_blocks=SPEC.num_blocks,
                request_blocks=TOKENS // chunk_tokens * chunk_tokens // SPEC.block_size,
                seed=seed,
                turn=0,
                rank=0,
            ),
            surprises=surprises,
        )
        for request in list(desk.open_requests.values()):
            await desk.settle(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a RETRIEVE brought back, as the new content and as the old, and what STORE took."""

    as_new: Evidence
    as_old: Evidence
    stored_ns: int
    replied_ns: int
    fill_was_pending: bool


async def write_late(rig: Rig, seed: int, *, early_event: bool) -> Outcome:
    """Fill slowly, STORE at once, and look at what was stored."""
    import torch

    pool, plan = rig.pool, rig.plan
    tokens = sequence_tokens(seed, 1, TOKENS)
    root = content_seed(seed, "")
    new = chunk_digests(root, tokens, rig.chunk_tokens)
    old = chunk_digests(root, sequence_tokens(seed, 0, TOKENS), rig.chunk_tokens)
    pool.fill(plan.source, new)  # once before: a first time compiles kernels
    pool.fill(plan.source, old)
    torch.cuda.synchronize()
    before_the_fill = pool.record_event()
    request, hits = await rig.open(tokens, "cold")
    assert hits == 0

    with torch.cuda.stream(pool.stream):
        torch.cuda._sleep(SLEEP_CYCLES)
    pool.fill(plan.source, new)
    assert not pool.stream.query(), "the fill waited for the device: nothing is late here"
    started_ns = time.perf_counter_ns()
    if early_event:
        await store_with(rig, request, before_the_fill)
        replied_ns = stored_ns = time.perf_counter_ns() - started_ns
    else:
        moved = await rig.mode.store(rig.key(request), plan.source)
        replied_ns, stored_ns = moved.replied_ns - moved.began_ns, moved.latency_ns
    pending = not pool.stream.query()
    await rig.desk.settle(request)

    torch.cuda.synchronize()
    warm = await rig.open_visible(tokens)
    pool.poison(plan.destination)
    await rig.mode.retrieve(rig.key(warm), plan.destination)
    warm.locked_ranks.clear()  # the RETRIEVE gave its lock back
    await rig.desk.settle(warm)
    candidates = (Candidate(label="old", digests=old),)
    outcome = Outcome(
        as_new=verify(pool, plan.destination, new, candidates),
        as_old=verify(pool, plan.destination, old, ()),
        stored_ns=stored_ns,
        replied_ns=replied_ns,
        fill_was_pending=pending,
    )
    assert verify(pool, plan.source, new, candidates).kind is EvidenceKind.MATCH
    assert verify_canaries(pool, plan.destination).kind is EvidenceKind.MATCH
    return outcome


async def store_with(rig: Rig, request: OpenRequest, event: bytes) -> None:
    """STORE the source with an event of our choice, and wait until the server has read it."""
    tables = [list(rig.plan.source.block_ids) for _ in SPEC.groups]
    reply = await rig.rpc.call(Op.STORE, rig.key(request), rig.instance_id, tables, event)
    result: TransferResult = reply.result
    assert result.ok
    landed = result.event
    await in_thread(rig.executor, lambda: rig.pool.wait_event(landed, timeout_ns=CALL_WITHIN_NS))


async def play(server: Urls, scene: Callable[[Rig, int], Coroutine[Any, Any, Outcome]]) -> Outcome:
    """Return the outcome of a scene with a seed that no cache has seen."""
    seed = secrets.randbits(40)
    async with rigged(server, seed) as rig:
        outcome = await scene(rig, seed)
        assert not rig.surprises
        return outcome


@pytest.mark.asyncio
async def test_what_is_written_late_is_what_is_stored(gpu_server: Urls) -> None:
    outcome = await play(gpu_server, lambda rig, seed: write_late(rig, seed, early_event=False))
    assert outcome.as_new.kind is EvidenceKind.MATCH, outcome
    assert outcome.as_old.kind is EvidenceKind.MISMATCH, outcome
    # The server did wait: STORE has landed only after the sleep.
    assert outcome.stored_ns > SLEEP_AT_LEAST_NS, outcome
    assert outcome.replied_ns <= outcome.stored_ns


@pytest.mark.asyncio
async def test_without_its_event_the_late_writer_is_seen_to_lose(gpu_server: Urls) -> None:
    outcome = await play(gpu_server, lambda rig, seed: write_late(rig, seed, early_event=True))
    assert outcome.fill_was_pending, "STORE ended after the fill: there was no race to see"
    # Old bytes, or none at all: 0.5.6 on torch's kernels stores what its staging buffer held.
    assert outcome.as_new.kind is EvidenceKind.MISMATCH, outcome


@pytest.mark.asyncio
async def test_without_its_event_the_embedded_server_stores_the_old_bytes(
    embedded_gpu: Urls,
) -> None:
    outcome = await play(embedded_gpu, lambda rig, seed: write_late(rig, seed, early_event=True))
    assert outcome.as_new.first is not None
    assert "old" in outcome.as_new.first.owner
    assert outcome.as_old.kind is EvidenceKind.MATCH, outcome


@pytest.mark.asyncio
async def test_the_embedded_server_replies_before_the_data_has_landed(embedded_gpu: Urls) -> None:
    outcome = await play(embedded_gpu, lambda rig, seed: write_late(rig, seed, early_event=False))
    assert outcome.replied_ns < SLEEP_AT_LEAST_NS < outcome.stored_ns, outcome


@pytest.mark.asyncio
@pytest.mark.parametrize("event", [b"", b"stub_ipc_handle", bytes(64), b"\xff" * 64, bytes(81)])
async def test_a_store_without_a_true_event_is_never_answered(
    event: bytes, embedded_gpu: Urls
) -> None:
    seed = secrets.randbits(40)
    async with rigged(embedded_gpu, seed) as rig:
        request, hits = await rig.open(sequence_tokens(seed, 1, TOKENS), "cold")
        assert hits == 0
        tables = [list(rig.plan.source.block_ids) for _ in SPEC.groups]
        arguments = (rig.key(request), rig.instance_id, tables, event)
        with pytest.raises(NoAnswerError):
            await rig.rpc.call(Op.STORE, *arguments, timeout_ns=NS_PER_S)
        assert (await rig.rpc.call(Op.NOOP)).result == "OK"


@pytest.mark.asyncio
@pytest.mark.parametrize("handle", [b"", b"stub_ipc_handle", bytes(64), b"\xff" * 64, bytes(65)])
async def test_an_answer_without_a_true_event_is_an_error(
    handle: bytes, embedded_gpu: Urls
) -> None:
    seed = secrets.randbits(40)
    async with rigged(embedded_gpu, seed) as rig:
        with pytest.raises(EventError):
            rig.pool.wait_event(handle, timeout_ns=NS_PER_S)
        rig.pool.fill(rig.plan.source, range(rig.chunks))  # the pool still works
