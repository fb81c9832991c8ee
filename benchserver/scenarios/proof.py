"""The proof of one sequence: every byte of every reading rank, and the digests of both sides.

Nothing of it lies in a timed region.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from benchserver.client.worker import Worker
from benchserver.history import (
    DigestRecord,
    EvidenceRecord,
    PartialRecord,
    Probe,
    SourceRecord,
)
from benchserver.kv.blocks import BlockPlan, Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.owners import Candidate
from benchserver.kv.verify import verify, verify_canaries, verify_reused, verify_skipped
from benchserver.scenarios.digests import Digester, Leg, digest_record
from benchserver.tasks import cancel_and_wait, gather_all, gather_two, in_thread


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
    """Looks at the bytes of all workers; without a `digester` there are no digests."""

    def __init__(
        self,
        workers: Sequence[Worker],
        digester: Digester | None,
        executor: Executor,
        *,
        sources: Sequence[int],
    ) -> None:
        """Prove sequences of one client; `sources` are the ranks that stored in this run."""
        self._workers = workers
        self._digester = digester
        self._executor = executor
        self._sources = sources

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
            ours = await self._our_digests(work, evidence, sources)
            answers = await server
        finally:
            await cancel_and_wait([server])
        digests = [digest_record(leg, ours[leg], answer) for leg, answer in answers.items()]
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
        if self._digester is None:
            return {}
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
        ours = await self._digester.ours(windows)
        return ours | {leg: ours[same] for leg, same in known.items()}

    async def _server_digests(self, work: SequencePlan) -> dict[Leg, tuple[str, ...] | str]:
        """Return the server's digests of every leg, or why there are none."""
        if self._digester is None:
            return {}
        legs = self._source_legs(work)
        legs |= {(w.rank, "destination"): work.plans[w.rank].destination for w in self._workers}
        return await self._digester.servers(legs)
