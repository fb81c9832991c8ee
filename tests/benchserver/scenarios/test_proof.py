"""The proof of a sequence: in which order digests come back, what is hashed, why there are none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from benchserver.client.http import HttpFailedError
from benchserver.geometry import Geometry
from benchserver.history import DigestRecord, EvidenceRecord, Outcome, SourceRecord
from benchserver.kv.blocks import BlockPlan, Window
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.pattern import U8
from benchserver.kv.pool import Compared, Places
from benchserver.scenarios.digests import Digester, Effort
from benchserver.scenarios.proof import Prover, SequencePlan
from shapespec import parse_shape_spec

WITHIN_S = 20.0
BLOCKS = 2
"""Blocks of a chunk."""

GEOMETRY = Geometry(
    spec=parse_shape_spec("(2,128,16,2,8):float16:2"), chunk_tokens=BLOCKS * 16, num_tokens=64
)

CONTENT = PoolContent(
    spec=GEOMETRY.spec,
    patterns=group_patterns(bytes(16), GEOMETRY.spec, BLOCKS),
    rank=0,
    ranks=1,
)


@dataclass
class Meter:
    """Counts who is inside; `full` is set once as many are as must be."""

    wanted: int
    inside: int = 0
    most: int = 0
    full: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside == self.wanted:
                self.full.set()

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1


FIRST_PAGE: Places = np.zeros((1, 3), np.intp)
NO_PAGE = FIRST_PAGE[:0]


@dataclass
class FakePool:
    """Digests are the block ids; hashing waits until as many threads hash as must."""

    meter: Meter
    wrong: frozenset[str] = frozenset()
    """The legs whose first page is wrong."""
    hashed: list[tuple[int, ...]] = field(default_factory=list)
    content: PoolContent = CONTENT

    def compare(
        self, window: Window, digests: Any, *, skipped: int = 0, reused: bool = False
    ) -> Compared:
        leg = "destination" if window.canaries else "source"
        return Compared(places=FIRST_PAGE if leg in self.wrong else NO_PAGE)

    def not_filled(self, block_ids: Sequence[int], byte: int) -> Places:
        return NO_PAGE

    def wrong_guards(self) -> dict[int, U8]:
        return {}

    def page(self, layer: int, plane: int, block_id: int) -> U8:
        return np.zeros(16 * 2 * 8 * 2, np.uint8)

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        self.meter.enter()
        try:
            assert self.meter.full.wait(WITHIN_S), f"only {self.meter.most} hash at once"
            self.hashed.append(tuple(block_ids))
            return digest_of(block_ids)
        finally:
            self.meter.leave()


@dataclass
class FakeHttp:
    """Answers nothing before as many requests wait as must, and then the last one first."""

    wanted: int
    failing: frozenset[int] = frozenset()
    inside: int = 0
    most: int = 0
    asked: list[tuple[int, ...]] = field(default_factory=list)
    waiting: list[asyncio.Event] = field(default_factory=list)
    full: bool = False
    answering: bool = False

    def answer_last(self) -> None:
        """Answer the request that came last of those that wait."""
        self.answering = bool(self.waiting)
        if self.waiting:
            self.waiting.pop().set()

    async def checksums(
        self, *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
    ) -> tuple[str, ...]:
        self.asked.append(tuple(block_ids))
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.full = self.full or self.inside == self.wanted
        turn = asyncio.Event()
        self.waiting.append(turn)
        if self.full and not self.answering:
            self.answer_last()
        await asyncio.wait_for(turn.wait(), WITHIN_S)
        self.inside -= 1
        self.answer_last()
        if self.failing & set(block_ids):
            raise HttpFailedError("HTTP 500")
        starts = range(0, len(block_ids), blocks_per_chunk)
        return tuple(digest_of(block_ids[at : at + blocks_per_chunk]) for at in starts)


@dataclass
class FakeWorker:
    rank: int
    kv_rank: int
    pool: FakePool
    instance_id: int = 7


def digest_of(block_ids: Sequence[int]) -> str:
    return ",".join(map(str, block_ids))


def digests_of(window: Window) -> tuple[str, ...]:
    return tuple(digest_of(table) for table in window.chunk_tables(BLOCKS))


def plan_of(ranks: int, chunks: int) -> SequencePlan:
    """Lay the windows of all ranks one behind the other, so that no block id comes twice."""
    plans, span = [], chunks * BLOCKS
    for rank in range(ranks):
        first = 1 + (2 * span + 1) * rank
        source = window(first, span)
        destination = window(first + span, span, canaries=1)
        plans.append(BlockPlan(source=source, destination=destination))
    digests = tuple(range(1, chunks + 1))
    return SequencePlan(seq=3, tokens=[], digests=digests, plans=tuple(plans))


def window(first: int, blocks: int, *, canaries: int = 0) -> Window:
    """Return a block table that runs backwards, and the canaries behind it."""
    end = first + blocks
    return Window(
        first=first,
        count=blocks + canaries,
        block_ids=tuple(reversed(range(first, end))),
        canaries=tuple(range(end, end + canaries)),
    )


@dataclass
class Proof:
    """What a proof gave, and what it took."""

    evidence: dict[int, EvidenceRecord] = field(default_factory=dict)
    sources: dict[int, SourceRecord] = field(default_factory=dict)
    digests: dict[tuple[int, str], DigestRecord] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)


async def prove(
    workers: Sequence[FakeWorker],
    http: FakeHttp | None,
    work: SequencePlan,
    *,
    effort: Effort,
    sources: Sequence[int],
) -> Proof:
    proof = Proof()
    with ThreadPoolExecutor(16) as executor:
        digester = None
        if http is not None:
            digester = Digester(
                workers,  # type: ignore[arg-type]
                http,  # type: ignore[arg-type]
                executor,
                geometry=GEOMETRY,
                effort=effort,
            )
        prover = Prover(workers, digester, executor, sources=sources)  # type: ignore[arg-type]
        for record in await asyncio.wait_for(prover.prove(work, ()), WITHIN_S):
            if isinstance(record, EvidenceRecord):
                proof.evidence[record.rank] = record
            elif isinstance(record, SourceRecord):
                proof.sources[record.rank] = record
            else:
                proof.digests[record.rank, record.leg] = record
                proof.order.append((record.rank, record.leg))
    return proof


@pytest.mark.parametrize(("threads", "requests"), [(1, 2), (4, 8)])
@pytest.mark.asyncio
async def test_hashes_as_much_at_once_as_it_may(threads: int, requests: int) -> None:
    meter, http = Meter(wanted=threads), FakeHttp(wanted=requests)
    pool, work = FakePool(meter), plan_of(ranks=1, chunks=16)
    effort = Effort(hash_threads=threads, digests_at_once=requests, chunks_per_request=2)
    proof = await prove([FakeWorker(0, 0, pool)], http, work, effort=effort, sources=[0])
    assert (meter.most, http.most) == (threads, requests)
    plan = work.plans[0]
    assert proof.order == [(0, "source"), (0, "destination")]
    for leg, window_ in (("source", plan.source), ("destination", plan.destination)):
        record = proof.digests[0, leg]
        assert record.outcome is Outcome.OK
        assert record.server == digests_of(window_)  # in order, though answers came in reverse
    # A destination that matched has its source's digests: it is not hashed again.
    assert sorted(pool.hashed) == sorted(map(tuple, plan.source.chunk_tables(BLOCKS)))
    assert proof.digests[0, "source"].ours == digests_of(plan.source)
    assert proof.digests[0, "destination"].ours == digests_of(plan.source)
    assert {len(ids) for ids in http.asked} == {2 * BLOCKS}
    assert len(http.asked) == 2 * 16 // 2


@pytest.mark.parametrize("wrong", [{"destination"}, {"source"}, {"source", "destination"}])
@pytest.mark.asyncio
async def test_what_did_not_match_is_hashed_as_it_is(wrong: set[str]) -> None:
    pool = FakePool(Meter(wanted=2), wrong=frozenset(wrong))
    http, work = FakeHttp(wanted=2), plan_of(ranks=1, chunks=3)
    effort = Effort(hash_threads=2, digests_at_once=2, chunks_per_request=1)
    proof = await prove([FakeWorker(0, 0, pool)], http, work, effort=effort, sources=[0])
    plan = work.plans[0]
    assert proof.digests[0, "source"].ours == digests_of(plan.source)
    assert proof.digests[0, "destination"].ours == digests_of(plan.destination)


@pytest.mark.asyncio
async def test_ranks_that_share_one_source_hash_it_once() -> None:
    """MLA: two ranks read what one has stored."""
    pools = [FakePool(Meter(wanted=3)), FakePool(Meter(wanted=1))]
    workers = [FakeWorker(rank, 0, pool) for rank, pool in enumerate(pools)]
    work = plan_of(ranks=2, chunks=3)
    effort = Effort(hash_threads=3, digests_at_once=3, chunks_per_request=1)
    proof = await prove(workers, FakeHttp(wanted=3), work, effort=effort, sources=[0])
    assert proof.order == [(0, "source"), (0, "destination"), (1, "destination")]
    assert {record.ours for record in proof.digests.values()} == {digests_of(work.plans[0].source)}
    assert [len(pool.hashed) for pool in pools] == [3, 0]


@pytest.mark.asyncio
async def test_a_leg_that_failed_says_why_and_is_not_asked_for_again() -> None:
    pool, work = FakePool(Meter(wanted=1)), plan_of(ranks=1, chunks=6)
    failing = frozenset(work.plans[0].source.block_ids)
    http = FakeHttp(wanted=2, failing=failing)
    effort = Effort(hash_threads=1, digests_at_once=2, chunks_per_request=1)
    proof = await prove([FakeWorker(0, 0, pool)], http, work, effort=effort, sources=[0])
    source, destination = proof.digests[0, "source"], proof.digests[0, "destination"]
    assert source.outcome is Outcome.UNKNOWN
    assert source.reason == "HTTP 500; --no-http switches the cross-check off"
    assert source.server == ()
    assert destination.server == digests_of(work.plans[0].destination)
    assert sum(bool(failing & set(ids)) for ids in http.asked) <= 3


@pytest.mark.asyncio
async def test_without_http_nothing_is_hashed() -> None:
    pool, work = FakePool(Meter(wanted=1)), plan_of(ranks=1, chunks=2)
    effort = Effort(hash_threads=1, digests_at_once=2, chunks_per_request=1)
    proof = await prove([FakeWorker(0, 0, pool)], None, work, effort=effort, sources=[0])
    assert proof.digests == {}
    assert pool.hashed == []
    assert proof.evidence[0].content == proof.sources[0].content
    assert proof.evidence[0].content.kind is EvidenceKind.MATCH


@pytest.mark.asyncio
async def test_a_warm_run_hashes_the_destination_alone() -> None:
    pool, work = FakePool(Meter(wanted=2)), plan_of(ranks=1, chunks=4)
    effort = Effort(hash_threads=2, digests_at_once=2, chunks_per_request=1)
    proof = await prove(
        [FakeWorker(0, 0, pool)], FakeHttp(wanted=2), work, effort=effort, sources=[]
    )
    assert proof.order == [(0, "destination")]
    assert proof.digests[0, "destination"].ours == digests_of(work.plans[0].destination)


@pytest.mark.asyncio
async def test_an_error_while_hashing_ends_the_server_s_digests_too() -> None:
    class Broken(FakePool):
        def chunk_digest(self, block_ids: Sequence[int]) -> str:
            raise RuntimeError("broken")

    http, work = FakeHttp(wanted=99), plan_of(ranks=1, chunks=4)  # it would never answer
    effort = Effort(hash_threads=2, digests_at_once=2, chunks_per_request=1)
    workers = [FakeWorker(0, 0, Broken(Meter(wanted=1)))]
    with pytest.raises(RuntimeError, match="broken"):
        await prove(workers, http, work, effort=effort, sources=[0])
