"""The blocks of one request at a time: filled, poisoned and looked at in worker threads.

A lease is one of the disjoint parts of all pools of a client.  All of this is our own work; none of
it lies between two calls of a request if the number of hits is what was foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchserver.client.worker import Worker
from benchserver.history import DigestRecord, EvidenceRecord
from benchserver.kv.blocks import BlockPlan, Window
from benchserver.kv.owners import Candidate
from benchserver.kv.verify import verify, verify_canaries
from benchserver.scenarios.digests import Digester
from benchserver.stage.stage import Crew, Stage
from benchserver.tasks import gather_all, in_thread

_USES_OF_A_TURN = 8
"""A block table is a permutation: to draw one for each request of 100,000 tokens takes as long as
to fill its blocks."""


@dataclass(frozen=True, slots=True)
class Armed:
    """Blocks made ready for so many hits of a request, and when they were."""

    hits: int
    done_ns: int


class Lease:
    """One lease of a client's pools."""

    def __init__(self, stage: Stage, crew: Crew, *, number: int, leases: int) -> None:
        self.crew = crew
        self._clock = stage.clock
        self._threads = stage.threads
        self._number = number
        self._leases = leases
        self._uses = 0
        self._plans: list[BlockPlan] = []

    def begin(self) -> None:
        """Take the blocks of the next request."""
        turn, within = divmod(self._uses, _USES_OF_A_TURN)
        self._uses += 1
        if within:
            return
        engine, geometry = self.crew.engine, self.crew.geometry
        self._plans = [
            engine.block_plan(
                geometry, turn=turn, rank=worker.rank, lease=self._number, leases=self._leases
            )
            for worker in self.crew.workers
        ]

    def source(self, rank: int, chunks: int) -> Window:
        """Return the blocks of a rank out of which so many chunks are stored."""
        return self._plans[rank].source.packed(self._blocks(chunks))

    def target(self, rank: int, chunks: int) -> Window:
        """Return the blocks of a rank into which so many chunks of the request are read.

        What the request has beyond those is among its canaries.
        """
        return self._plans[rank].destination.first_blocks(self._blocks(chunks))

    def destination(self, rank: int) -> Window:
        """Return all blocks of a rank into which chunks may be read."""
        return self._plans[rank].destination

    async def arm(self, digests: Sequence[int], hits: int) -> Armed:
        """Fill what will be stored if so many chunks hit, and poison what they are read into."""
        jobs: list[Callable[[], None]] = []
        for worker in self.crew.workers:
            if hits:
                jobs.append(partial(worker.pool.poison, self.target(worker.rank, hits)))
            if hits < len(digests) and worker.rank in self.crew.engine.writers:
                window = self.source(worker.rank, len(digests) - hits)
                jobs.append(partial(worker.pool.fill, window, digests[hits:]))
        done = await gather_all(in_thread(self._threads, partial(self._done, job)) for job in jobs)
        return Armed(hits, max(done))

    def _done(self, job: Callable[[], None]) -> int:
        """Do it, and return when it was done: the event loop may hear of that later."""
        job()
        return self._clock.now_ns()

    async def look(
        self, digests: Sequence[int], past: Sequence[Candidate]
    ) -> tuple[EvidenceRecord, ...]:
        """Look at every byte of the chunks that were read, and at all canaries."""
        looks = (
            in_thread(self._threads, partial(self._look, worker, digests, past))
            for worker in self.crew.workers
        )
        return tuple(await gather_all(looks))

    async def digests(self, digester: Digester, chunks: int) -> tuple[DigestRecord, ...]:
        """Return both sides' digests of so many chunks that were read, of every rank."""
        workers = self.crew.workers
        legs = {(w.rank, "destination"): self.target(w.rank, chunks) for w in workers}
        return tuple(await digester.records(legs))

    def _look(
        self, worker: Worker, digests: Sequence[int], past: Sequence[Candidate]
    ) -> EvidenceRecord:
        window = self.target(worker.rank, len(digests))
        return EvidenceRecord(
            rank=worker.rank,
            content=verify(worker.pool, window, digests, past),
            canaries=verify_canaries(worker.pool, window),
        )

    def _blocks(self, chunks: int) -> int:
        return chunks * self.crew.geometry.blocks_per_chunk
