"""A scenario of engines that share prefixes: each reads what hits and stores the rest, all at once.

Every client has several requests under way, in leases of its pools.  First one client stores a
common prefix; then all ask for it with endings of their own, RETRIEVE the prefix, STORE the rest
from there, and at last read all of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from benchserver.check.verdict import Check, Finding, failed, passed
from benchserver.clock import RealClock
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.history import LookupRecord, Outcome, Step
from benchserver.kv.blocks import BlockPlan
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.kv.pattern import chunk_digests
from benchserver.kv.verify import verify, verify_canaries
from benchserver.load.workload import chunked_tokens
from benchserver.result import RunResult
from benchserver.scenarios import requests
from benchserver.stage.run import Run
from benchserver.stage.stage import Crew, Stage
from benchserver.stage.traits import Omissions, Traits
from benchserver.tasks import gather_all

HITS = Check("hits", "what hit is read, the rest is stored, and all of it comes back")
SPEC = "(2,544,16,2,8):float16:2"
SPEC_MLA = "(1,544,16,1,8):float16:2"
ATTEMPTS = 400


@dataclass
class PartialHits:
    """The scenario; the first half of the chunks is common."""

    clients: int
    in_flight: int
    seed: int = 5

    @property
    def traits(self) -> Traits:
        return Traits(
            name="partial hits",
            unit="request",
            checks=(HITS,),
            clients=self.clients,
            in_flight=self.in_flight,
            turns=range(1),
        )

    def omissions(self, _stage: Stage) -> Omissions:
        return Omissions()

    async def play(self, stage: Stage) -> None:
        first = stage.crews[0]
        tokens = self._tokens(first, 0)[: self._common(first)]
        await _One(stage, first, tokens, number=0, lease=0, of=self.in_flight).run(0)
        await gather_all(
            _One(
                stage,
                crew,
                self._tokens(crew, number := 1 + crew.number * self.in_flight + lease),
                number=number,
                lease=lease,
                of=self.in_flight,
            ).run(self._common(crew))
            for crew in stage.crews
            for lease in range(self.in_flight)
        )

    def _common(self, crew: Crew) -> int:
        return crew.geometry.chunks // 2 * crew.geometry.chunk_tokens

    def _tokens(self, crew: Crew, number: int) -> list[int]:
        geometry, common = crew.geometry, self._common(crew)
        step = geometry.chunk_tokens
        return [
            *chunked_tokens(self.seed, 1, geometry.end, step)[:common],
            *chunked_tokens(self.seed, 1000 + number, geometry.end, step)[common:],
        ]


@dataclass
class _One:
    """One request, in one lease."""

    stage: Stage
    crew: Crew
    tokens: Sequence[int]
    number: int
    lease: int
    of: int
    wrong: list[str] = field(default_factory=list)

    async def run(self, hit: int) -> None:
        """`hit` tokens are there, and the rest is not."""
        found = await self._request("cold", hit, hit)
        await self._request("warm", len(self.tokens), len(self.tokens))
        finding = failed(HITS, "; ".join(self.wrong)) if self.wrong else passed(HITS)
        assert found is not None
        await self.stage.conclude(f"request={self.number}", [finding])

    async def _request(self, name: str, wanted: int, hit: int) -> LookupRecord:
        crew, step = self.crew, self.crew.geometry.chunk_tokens
        for attempt in range(ATTEMPTS):
            request = crew.desk.open(
                self.tokens,
                end=len(self.tokens),
                request_id=f"{self.stage.nonce}-{self.number}-{name}-{attempt}",
            )
            found = await requests.look_up(
                self.stage, crew, request, name, expected=wanted // step, total=1
            )
            if found.hits * step >= hit:
                break
            await requests.settle(crew, request)
            await asyncio.sleep(0.005)
        if found.hits * step != hit:
            self.wrong.append(f"{name}: {found.hits} chunks hit, expected {hit // step}")
        await gather_all(self._rank(request, rank, hit) for rank in range(len(crew.workers)))
        ends = await requests.settle(crew, request)
        self.wrong += [end.reason for end in ends if end.outcome is not Outcome.OK]
        if any(end.name != "END_SESSION" for end in ends):
            self.wrong.append(f"{name}: locks were left of {request}")
        return found

    async def _rank(self, request: Any, rank: int, hit: int) -> None:
        crew, worker, pool = self.crew, self.crew.workers[rank], self.crew.workers[rank].pool
        geometry = replace(crew.geometry, num_tokens=len(self.tokens))
        digests = chunk_digests(crew.content_root, self.tokens, geometry.chunk_tokens)
        chunks, per_chunk = hit // geometry.chunk_tokens, geometry.blocks_per_chunk
        plan: BlockPlan = crew.engine.block_plan(
            geometry, turn=self.number, rank=rank, lease=self.lease, leases=self.of
        )
        if hit:
            target = plan.destination.first_blocks(chunks * per_chunk)
            pool.poison(target)
            self._moved(
                await requests.retrieve(
                    self.stage, crew, request, worker, plan.destination, end=hit
                )
            )
            self._proven(verify(pool, target, digests[:chunks], ()))
            self._proven(verify_canaries(pool, target))
        if hit < len(self.tokens) and rank in crew.engine.writers:
            source = plan.source.packed((geometry.chunks - chunks) * per_chunk)
            pool.fill(source, digests[chunks:])
            self._moved(await requests.store(self.stage, crew, request, worker, source, start=hit))
            self._proven(verify(pool, source, digests[chunks:], ()))

    def _moved(self, step: Any) -> None:
        if step.outcome is not Outcome.OK or step.chunks != step.total:
            self.wrong.append(f"{step.name}: {step.chunks}/{step.total}: {step.reason}")

    def _proven(self, seen: Evidence) -> None:
        if seen.kind is not EvidenceKind.MATCH:
            self.wrong.append(f"{seen.kind}: {seen.bad_pages} of {seen.pages}: {seen.first}")


class _Silent:
    def note(self, text: str) -> None: ...

    def step(self, label: str, step: Step) -> None: ...

    def concluded(self, label: str, findings: Sequence[Finding]) -> None: ...


async def play_partial_hits(config: RunConfig, *, clients: int, in_flight: int) -> RunResult:
    """Run the scenario with the target and the engine of a configuration."""
    engine = cast(Engine, config.engine)
    run = Run(
        config,
        PartialHits(clients=clients, in_flight=in_flight, seed=engine.seed),
        _Silent(),
        clock=RealClock(),
        stop=asyncio.Event(),
        cancel=threading.Event(),
    )
    return await run.execute()
