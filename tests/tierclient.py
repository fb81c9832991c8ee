"""One rank that stores sequences and finds them again, byte for byte: for scripts/kill_fs_tier."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

from benchserver.client.connection import Connection
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import LookupDesk
from benchserver.client.mapped import MappedMode
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_S, RealClock
from benchserver.kv.blocks import Window, lease_plan
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.owners import Candidate
from benchserver.kv.pattern import (
    chunk_digests,
    content_seed,
)
from benchserver.kv.verify import verify, verify_canaries
from benchserver.load.workload import chunked_tokens
from benchserver.shmnames import segment_name
from protocol.dialects import V056
from shapespec import parse_shape_spec
from tests.embeddedhttp import NoAnswerError
from tests.mitm.servers import Server

MODEL = "kill-fs-tier"
SPEC = parse_shape_spec("(2,192,16,2,8):float16:16")
CHUNK_TOKENS = 256
CHUNKS = 4
TOKENS = CHUNKS * CHUNK_TOKENS
BLOCKS_PER_CHUNK = CHUNK_TOKENS // SPEC.block_size
INSTANCE = 1
CALL_WITHIN_NS = 30 * NS_PER_S


class FailedError(Exception):
    """Something was lost, wrong or in the way; one line."""


class Client:
    """One rank, registered with one server."""

    def __init__(self, seed: int, rpc: Connection, pool: HostPool, mode: MappedMode) -> None:
        self._seed = seed
        self._root = content_seed(seed, "")
        self._pool = pool
        self._mode = mode
        self._keys = KeyMaker(model_name=MODEL, world_size=1, cache_salt="", readers=1)
        self._desk = LookupDesk(
            rpc,
            self._keys,
            kv_ranks=[0],
            tp_size=1,
            chunk_tokens=CHUNK_TOKENS,
            clock=RealClock(),
            timeout_ns=CALL_WITHIN_NS,
        )

    async def store(self, sequence: int) -> None:
        """STORE a sequence; returns when that is acknowledged."""
        tokens, digests = self._content(sequence)
        source, _ = self._windows(sequence)
        self._pool.fill(source, digests)
        request = self._desk.open(tokens, end=TOKENS, request_id=f"store-{sequence}")
        key = self._keys.key(tokens, end=TOKENS, request_id=request.request_id, kv_rank=0)
        await self._mode.store(key, source)
        await self._settle(sequence, request.request_id)

    async def find(self, sequence: int) -> int:
        """LOOKUP a sequence and RETRIEVE what is there; return how many chunks that were.

        Raises FailedError unless every byte of them is right, and no other was touched.
        """
        tokens, digests = self._content(sequence)
        _, destination = self._windows(sequence)
        request = self._desk.open(tokens, end=TOKENS, request_id=f"find-{sequence}")
        chunks = (await self._desk.lookup(request)).chunks
        if chunks:
            self._pool.poison(destination)
            request.end = chunks * CHUNK_TOKENS
            window = _part(destination, chunks)
            key = self._keys.key(tokens, end=request.end, request_id=request.request_id, kv_rank=0)
            await self._mode.retrieve(key, window)
            request.locked_ranks.clear()
            past = (Candidate(label=f"sequence {sequence}", digests=digests),)
            _expect_match(sequence, verify(self._pool, window, digests[:chunks], past))
            _expect_match(sequence, verify_canaries(self._pool, destination))
        await self._settle(sequence, request.request_id)
        return chunks

    async def _settle(self, sequence: int, request_id: str) -> None:
        for record in await self._desk.settle(self._desk.open_requests[request_id]):
            if record.reason:
                raise NoAnswerError(f"sequence {sequence}: {record.name}: {record.reason}")

    def _content(self, sequence: int) -> tuple[list[int], tuple[int, ...]]:
        tokens = chunked_tokens(self._seed, sequence, TOKENS, CHUNK_TOKENS)
        return tokens, chunk_digests(self._root, tokens, CHUNK_TOKENS)

    def _windows(self, sequence: int) -> tuple[Window, Window]:
        plan = lease_plan(
            num_blocks=SPEC.num_blocks,
            request_blocks=CHUNKS * BLOCKS_PER_CHUNK,
            seed=self._seed,
            turn=sequence,
            rank=0,
        )
        return plan.source, plan.destination


def _part(window: Window, chunks: int) -> Window:
    """Return the window with the blocks of its first chunks alone."""
    ids = window.block_ids[: chunks * BLOCKS_PER_CHUNK]
    return Window(first=window.first, count=window.count, block_ids=ids, canaries=window.canaries)


def _expect_match(sequence: int, evidence: Evidence) -> None:
    if evidence.kind is not EvidenceKind.MATCH:
        raise FailedError(
            f"sequence {sequence}: {evidence.kind.value}, {evidence.bad_pages} of "
            f"{evidence.pages} pages are wrong, the first: {evidence.first}"
        )


@asynccontextmanager
async def connected(server: Server, seed: int, nonce: str) -> AsyncIterator[Client]:
    """Register a client; at the end its memory goes, whether the server lives or not."""
    events: list[object] = []
    async with AsyncExitStack() as cleanup:
        cancel = threading.Event()
        segment = SharedSegment(place_tensors(SPEC)[1], cancel)
        cleanup.callback(segment.close)
        pool = HostPool(
            segment,
            PoolContent(
                spec=SPEC,
                patterns=group_patterns(content_seed(seed, ""), SPEC, BLOCKS_PER_CHUNK),
                rank=0,
                ranks=1,
            ),
            shm_name=segment_name(nonce, 0),
            cancel=cancel,
        )
        cleanup.callback(pool.close)
        connector = ZmqConnector(server.urls.rpc_url, clock=RealClock(), timeout_ns=CALL_WITHIN_NS)
        cleanup.push_async_callback(connector.close)
        rpc = connector.open(V056, events.append)
        mode = MappedMode(
            rpc,
            pool,
            SPEC,
            instance_id=INSTANCE,
            model_name=MODEL,
            world_size=1,
            chunk_tokens=CHUNK_TOKENS,
            timeout_ns=CALL_WITHIN_NS,
            clock=RealClock(),
            executor=cleanup.enter_context(ThreadPoolExecutor(1)),
        )
        await mode.register()
        yield Client(seed, rpc, pool, mode)
    if events:
        raise FailedError(f"an unexpected reply: {events[0]}")
