"""The proof of one sequence: every byte of every reading rank, and the digests of both sides.

Our hashing runs in threads while the server computes its own digests, in slices; nothing of it
lies in a timed region.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.client.worker import Worker
from benchserver.errors import one_line
from benchserver.history import (
    DigestRecord,
    EvidenceRecord,
    Outcome,
    PartialRecord,
    SourceRecord,
)
from benchserver.kv.blocks import BlockPlan, Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.verify import Candidate
from benchserver.tasks import cancel_and_wait, gather_all, gather_two, in_thread

_DIGEST_SLICE_BYTES = 64 << 20
"""One digest request covers about this much, so that no single answer takes long."""

_DIGESTS_AT_ONCE = 2

Leg = tuple[int, str]
"""A rank, and `source` or `destination`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlan:
    """One token sequence and its blocks on every rank."""

    seq: int
    tokens: Sequence[int]
    digests: tuple[int, ...]
    plans: tuple[BlockPlan, ...]


class Prover:
    """Looks at the bytes of all workers; `http` None leaves the digests out."""

    def __init__(
        self,
        workers: Sequence[Worker],
        http: HttpApi | None,
        executor: Executor,
        *,
        sources: Sequence[int],
        blocks_per_chunk: int,
        chunk_bytes: int,
    ) -> None:
        """`sources` are the ranks that stored in this run."""
        self._workers = workers
        self._http = http
        self._executor = executor
        self._sources = sources
        self._blocks_per_chunk = blocks_per_chunk
        self._chunks_per_request = max(1, _DIGEST_SLICE_BYTES // chunk_bytes)

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
                in_thread(self._executor, partial(worker.pool.verify, window, work.digests, past)),
                in_thread(self._executor, partial(worker.pool.verify_canaries, window)),
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
        look = partial(pool.verify_skipped, window, work.digests, past, skipped=skipped)
        read = partial(pool.verify, window, work.digests, past, skipped=skipped)
        kept, restored, canaries = await gather_all(
            in_thread(self._executor, see)
            for see in (look, read, partial(pool.verify_canaries, window))
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
        look = partial(self._workers[rank].pool.verify, work.plans[rank].source, work.digests, past)
        return SourceRecord(rank=rank, content=await in_thread(self._executor, look))

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
        proven = EvidenceKind.MATCH
        unaltered = {record.rank for record in sources if record.content.kind is proven}
        ours: dict[Leg, tuple[str, ...]] = {}
        for rank in self._sources:
            ours[rank, "source"] = await self._hash(rank, work.plans[rank].source)
        for record in evidence:
            worker = self._workers[record.rank]
            known = ours.get((worker.kv_rank, "source"))
            same = worker.kv_rank in unaltered and record.content.kind is proven
            if known is None or not same:
                known = await self._hash(record.rank, work.plans[record.rank].destination)
            ours[record.rank, "destination"] = known
        return ours

    async def _hash(self, rank: int, window: Window) -> tuple[str, ...]:
        """Hash chunk by chunk: the server, which hashes twice as much, has the other cores."""
        pool = self._workers[rank].pool
        return tuple(
            [
                await in_thread(self._executor, partial(pool.chunk_digest, table))
                for table in window.chunk_tables(self._blocks_per_chunk)
            ]
        )

    async def _server_digests(self, work: SequencePlan) -> dict[Leg, tuple[str, ...] | str]:
        """Return the server's digests of every leg, or why there are none."""
        if self._http is None:
            return {}
        gate = asyncio.Semaphore(_DIGESTS_AT_ONCE)
        legs = [(rank, "source", work.plans[rank].source) for rank in self._sources]
        legs += [(w.rank, "destination", work.plans[w.rank].destination) for w in self._workers]
        answers = await gather_all(
            self._leg_digests(self._http, self._workers[rank], window, gate)
            for rank, _, window in legs
        )
        return {(rank, leg): answer for (rank, leg, _), answer in zip(legs, answers, strict=True)}

    async def _leg_digests(
        self, http: HttpApi, worker: Worker, window: Window, gate: asyncio.Semaphore
    ) -> tuple[str, ...] | str:
        step = self._chunks_per_request * self._blocks_per_chunk
        digests: list[str] = []
        for start in range(0, len(window.block_ids), step):
            async with gate:
                try:
                    digests += await http.checksums(
                        block_ids=window.block_ids[start : start + step],
                        blocks_per_chunk=self._blocks_per_chunk,
                        instance_id=worker.instance_id,
                    )
                except API_ERRORS as error:
                    return one_line(error)
        return tuple(digests)


def _digest_record(leg: Leg, ours: tuple[str, ...], answer: tuple[str, ...] | str) -> DigestRecord:
    rank, name = leg
    if isinstance(answer, str):
        hint = "; --no-http switches the cross-check off"
        return DigestRecord(
            rank=rank, leg=name, outcome=Outcome.UNKNOWN, ours=ours, server=(), reason=answer + hint
        )
    return DigestRecord(rank=rank, leg=name, outcome=Outcome.OK, ours=ours, server=answer)
