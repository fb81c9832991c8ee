"""The proof of one sequence: every byte of every reading rank, and the digests of both sides.

Our hashing runs in threads while the server computes its own digests, in slices; nothing of it
lies in a timed region.  MD5 keeps a core busy with half a gigabyte a second, so how much of it
runs at once is the time that a proof takes: see `effort_on`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.client.worker import Worker
from benchserver.errors import one_line
from benchserver.geometry import Geometry
from benchserver.history import (
    DigestRecord,
    EvidenceRecord,
    Outcome,
    PartialRecord,
    Probe,
    SourceRecord,
)
from benchserver.kv.blocks import BlockPlan, Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.owners import Candidate
from benchserver.kv.verify import verify, verify_canaries, verify_reused, verify_skipped
from benchserver.tasks import cancel_and_wait, gather_all, gather_two, in_thread

_FEW_CPUS = 4
_FEW_CPUS_SLICE_BYTES = 64 << 20
_SLICE_BYTES = 32 << 20
"""One digest request covers about this much, at least a chunk: no single answer takes long, and
many cores all get a share."""

_MIN_DIGESTS_AT_ONCE = 2
_MAX_DIGESTS_AT_ONCE = 32
"""The real server computes digests in Python's default thread pool, which has 32 threads at most
(0.5.6)."""

_MAX_HASH_THREADS = 16
_ASKED_AT_ONCE_BYTES = 1 << 30
"""Bounds what is asked for at once: a server with one thread for it, at half a gigabyte a second,
still answers the last request within a few seconds of a deadline of ten."""

Leg = tuple[int, str]
"""A rank, and `source` or `destination`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much MD5 runs at once, on either side."""

    hash_threads: int
    """Chunks that we hash at once."""
    digests_at_once: int
    """Requests that the server is sent at once, each a slice of one leg."""
    chunks_per_request: int


def effort_on(cpus: int, chunk_bytes: int) -> Effort:
    """Return the effort for a machine that we share with the server.

    The server hashes source and destination, twice as much as we (`Prover.prove`): so it gets
    half of the cores, we a quarter, and the rest is for what feeds the hashing.  With few cores
    that is one thread of ours and two requests.
    """
    slice_bytes = _FEW_CPUS_SLICE_BYTES if cpus <= _FEW_CPUS else _SLICE_BYTES
    chunks_per_request = max(1, slice_bytes // chunk_bytes)
    bound = min(_MAX_DIGESTS_AT_ONCE, _ASKED_AT_ONCE_BYTES // (chunks_per_request * chunk_bytes))
    return Effort(
        hash_threads=max(1, min(cpus // 4, _MAX_HASH_THREADS)),
        digests_at_once=max(_MIN_DIGESTS_AT_ONCE, min(cpus // 2, bound)),
        chunks_per_request=chunks_per_request,
    )


def effort_here(chunk_bytes: int) -> Effort:
    """Return the effort for this machine."""
    return effort_on(os.cpu_count() or 1, chunk_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlan:
    """One token sequence, its blocks on every rank, and the probes that it carries.

    `overwritten`: when it is proven, its source blocks do not hold their content any more.
    `aside` names a request that goes with a sequence, "" for the sequence itself.
    """

    seq: int
    tokens: Sequence[int]
    digests: tuple[int, ...]
    plans: tuple[BlockPlan, ...]
    probes: frozenset[Probe] = frozenset()
    overwritten: bool = False
    aside: str = ""


class Prover:
    """Looks at the bytes of all workers; `http` None leaves the digests out."""

    def __init__(
        self,
        workers: Sequence[Worker],
        http: HttpApi | None,
        executor: Executor,
        *,
        sources: Sequence[int],
        geometry: Geometry,
        effort: Effort | None = None,
        asking: asyncio.Semaphore | None = None,
    ) -> None:
        """Prove sequences of one client.

        `sources` are the ranks that stored in this run; `effort` None: as this machine can.
        `asking` bounds what the server is asked at once by all who share it.
        """
        self._workers = workers
        self._http = http
        self._executor = executor
        self._sources = sources
        self._blocks_per_chunk = geometry.blocks_per_chunk
        self._effort = effort or effort_here(geometry.chunk_bytes)
        self._asking = asking or asyncio.Semaphore(self._effort.digests_at_once)

    async def prove(
        self, work: SequencePlan, past: tuple[Candidate, ...]
    ) -> list[EvidenceRecord | SourceRecord | DigestRecord]:
        """Return what the destination blocks hold, and both sides' digests."""
        server = asyncio.ensure_future(self._server_digests(work))
        try:
            evidence, sources = await gather_two(
                gather_all(self._evidence(work, w, past) for w in self._workers),
                gather_all(self._source(work, rank, past) for rank in self._sources),
            )
            ours = await self._our_digests(work, evidence, sources) if self._http else {}
            answers = await server
        finally:
            await cancel_and_wait([server])
        digests = [_digest_record(leg, ours[leg], answer) for leg, answer in answers.items()]
        return [*evidence, *sources, *digests]

    async def _evidence(
        self, work: SequencePlan, worker: Worker, past: tuple[Candidate, ...]
    ) -> EvidenceRecord:
        window = work.plans[worker.rank].destination
        content, canaries = await gather_all(
            (
                in_thread(self._executor, partial(verify, worker.pool, window, work.digests, past)),
                in_thread(self._executor, partial(verify_canaries, worker.pool, window)),
            )
        )
        return EvidenceRecord(rank=worker.rank, content=content, canaries=canaries)

    async def prove_partial(
        self, work: SequencePlan, past: tuple[Candidate, ...], *, skip_tokens: int, skipped: int
    ) -> list[PartialRecord]:
        """Return what a RETRIEVE left alone that skipped tokens, `skipped` whole blocks of them."""
        return await gather_all(
            self._partial(work, worker, past, skip_tokens, skipped) for worker in self._workers
        )

    async def _partial(
        self,
        work: SequencePlan,
        worker: Worker,
        past: tuple[Candidate, ...],
        skip_tokens: int,
        skipped: int,
    ) -> PartialRecord:
        window, pool = work.plans[worker.rank].destination, worker.pool
        look = partial(verify_skipped, pool, window, past, skipped=skipped)
        read = partial(verify, pool, window, work.digests, past, skipped=skipped)
        kept, restored, canaries = await gather_all(
            in_thread(self._executor, see)
            for see in (look, read, partial(verify_canaries, pool, window))
        )
        return PartialRecord(
            rank=worker.rank,
            skip_tokens=skip_tokens,
            skipped=kept,
            restored=restored,
            canaries=canaries,
        )

    async def _source(
        self, work: SequencePlan, rank: int, past: tuple[Candidate, ...]
    ) -> SourceRecord:
        pool = self._workers[rank].pool
        see = verify_reused if work.overwritten else verify
        look = partial(see, pool, work.plans[rank].source, work.digests, past)
        return SourceRecord(rank=rank, content=await in_thread(self._executor, look))

    def _source_legs(self, work: SequencePlan) -> dict[Leg, Window]:
        """Return the sources that have digests: none once they are overwritten."""
        ranks = () if work.overwritten else self._sources
        return {(rank, "source"): work.plans[rank].source for rank in ranks}

    async def _our_digests(
        self,
        work: SequencePlan,
        evidence: Sequence[EvidenceRecord],
        sources: Sequence[SourceRecord],
    ) -> dict[Leg, tuple[str, ...]]:
        """Return our digests of every leg.

        A destination whose every byte matched has, by that, the digests of its unaltered source;
        any other is hashed as it is.
        """
        proven, windows = EvidenceKind.MATCH, self._source_legs(work)
        unaltered = {
            record.rank
            for record in sources
            if record.content.kind is proven and (record.rank, "source") in windows
        }
        known: dict[Leg, Leg] = {}
        for record in evidence:
            leg, kv_rank = (record.rank, "destination"), self._workers[record.rank].kv_rank
            if kv_rank in unaltered and record.content.kind is proven:
                known[leg] = (kv_rank, "source")
            else:
                windows[leg] = work.plans[record.rank].destination
        ours = await self._hash(windows)
        return ours | {leg: ours[same] for leg, same in known.items()}

    async def _hash(self, windows: dict[Leg, Window]) -> dict[Leg, tuple[str, ...]]:
        """Hash every chunk of the windows, a few at once."""
        digests: dict[Leg, list[str]] = {}
        jobs: list[tuple[Leg, int, Sequence[int]]] = []
        for leg, window in windows.items():
            tables = window.chunk_tables(self._blocks_per_chunk)
            digests[leg] = [""] * len(tables)
            jobs += [(leg, index, table) for index, table in enumerate(tables)]

        async def hash_some(pending: Iterator[tuple[Leg, int, Sequence[int]]]) -> None:
            for leg, index, table in pending:
                pool = self._workers[leg[0]].pool
                look = partial(pool.chunk_digest, table)
                digests[leg][index] = await in_thread(self._executor, look)

        pending = iter(jobs)
        await gather_all(hash_some(pending) for _ in range(self._effort.hash_threads))
        return {leg: tuple(chunks) for leg, chunks in digests.items()}

    async def _server_digests(self, work: SequencePlan) -> dict[Leg, tuple[str, ...] | str]:
        """Return the server's digests of every leg, or why there are none."""
        if self._http is None:
            return {}
        legs = self._source_legs(work)
        legs |= {(w.rank, "destination"): work.plans[w.rank].destination for w in self._workers}
        step = self._effort.chunks_per_request * self._blocks_per_chunk
        parts: dict[Leg, dict[int, tuple[str, ...]]] = {leg: {} for leg in legs}
        failed: dict[Leg, str] = {}
        pending = iter(
            [
                (leg, start, window.block_ids[start : start + step])
                for leg, window in legs.items()
                for start in range(0, len(window.block_ids), step)
            ]
        )
        await gather_all(
            self._ask_some(self._http, pending, parts, failed)
            for _ in range(self._effort.digests_at_once)
        )
        return {leg: failed[leg] if leg in failed else _in_order(parts[leg]) for leg in legs}

    async def _ask_some(
        self,
        http: HttpApi,
        pending: Iterator[tuple[Leg, int, Sequence[int]]],
        parts: dict[Leg, dict[int, tuple[str, ...]]],
        failed: dict[Leg, str],
    ) -> None:
        """Take slices until there are none; a leg that failed once is not asked for again."""
        for leg, start, block_ids in pending:
            if leg in failed:
                continue
            try:
                async with self._asking:
                    parts[leg][start] = await http.checksums(
                        block_ids=block_ids,
                        blocks_per_chunk=self._blocks_per_chunk,
                        instance_id=self._workers[leg[0]].instance_id,
                    )
            except API_ERRORS as error:
                failed.setdefault(leg, one_line(error))


def _in_order(parts: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the digests of a leg out of its slices, by where each starts."""
    return tuple(digest for start in sorted(parts) for digest in parts[start])


def _digest_record(leg: Leg, ours: tuple[str, ...], answer: tuple[str, ...] | str) -> DigestRecord:
    rank, name = leg
    if isinstance(answer, str):
        hint = "; --no-http switches the cross-check off"
        return DigestRecord(
            rank=rank, leg=name, outcome=Outcome.UNKNOWN, ours=ours, server=(), reason=answer + hint
        )
    return DigestRecord(rank=rank, leg=name, outcome=Outcome.OK, ours=ours, server=answer)
