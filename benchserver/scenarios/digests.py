"""Digests of chunks: ours and, over HTTP, the server's, for windows of blocks.

Our hashing runs in threads while the server computes its own digests, in slices; nothing of it
lies in a timed region.  MD5 keeps a core busy with half a gigabyte a second, so how much of it
runs at once is the time that a proof takes: see `effort_on`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.client.worker import Worker
from benchserver.errors import one_line
from benchserver.geometry import Geometry
from benchserver.history import DigestRecord, Outcome
from benchserver.kv.blocks import Window
from benchserver.stage.stage import Stage
from benchserver.tasks import gather_all, gather_two, in_thread

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


def digesters_on(stage: Stage) -> tuple[Digester | None, ...]:
    """Return what takes the digests of each client, None where the server gives none.

    What they ask the server at once is bounded for all together.
    """
    effort = effort_here(stage.crews[0].geometry.chunk_bytes)
    asking = asyncio.Semaphore(effort.digests_at_once)
    return tuple(
        Digester(
            crew.workers,
            stage.met.http,
            stage.threads,
            geometry=crew.geometry,
            effort=effort,
            asking=asking,
        )
        if crew.cross_check
        else None
        for crew in stage.crews
    )


class Digester:
    """Takes the digests of one client's blocks."""

    def __init__(
        self,
        workers: Sequence[Worker],
        http: HttpApi,
        executor: Executor,
        *,
        geometry: Geometry,
        effort: Effort | None = None,
        asking: asyncio.Semaphore | None = None,
    ) -> None:
        """`effort` None: as this machine can.

        `asking` bounds what the server is asked at once by all who share it.
        """
        self._workers = workers
        self._http = http
        self._executor = executor
        self._blocks_per_chunk = geometry.blocks_per_chunk
        self._effort = effort or effort_here(geometry.chunk_bytes)
        self._asking = asking or asyncio.Semaphore(self._effort.digests_at_once)

    async def records(self, legs: Mapping[Leg, Window]) -> list[DigestRecord]:
        """Return what both sides say of every leg, as its blocks are now."""
        ours, servers = await gather_two(self.ours(legs), self.servers(legs))
        return [digest_record(leg, ours[leg], answer) for leg, answer in servers.items()]

    async def ours(self, windows: Mapping[Leg, Window]) -> dict[Leg, tuple[str, ...]]:
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

    async def servers(self, legs: Mapping[Leg, Window]) -> dict[Leg, tuple[str, ...] | str]:
        """Return the server's digests of every leg, or why there are none."""
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
            self._ask_some(pending, parts, failed) for _ in range(self._effort.digests_at_once)
        )
        return {leg: failed[leg] if leg in failed else _in_order(parts[leg]) for leg in legs}

    async def _ask_some(
        self,
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
                    parts[leg][start] = await self._http.checksums(
                        block_ids=block_ids,
                        blocks_per_chunk=self._blocks_per_chunk,
                        instance_id=self._workers[leg[0]].instance_id,
                    )
            except API_ERRORS as error:
                failed.setdefault(leg, one_line(error))


def _in_order(parts: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the digests of a leg out of its slices, by where each starts."""
    return tuple(digest for start in sorted(parts) for digest in parts[start])


def digest_record(leg: Leg, ours: tuple[str, ...], answer: tuple[str, ...] | str) -> DigestRecord:
    """Return the record of one leg, as both sides have it."""
    rank, name = leg
    if isinstance(answer, str):
        hint = "; --no-http switches the cross-check off"
        return DigestRecord(
            rank=rank, leg=name, outcome=Outcome.UNKNOWN, ours=ours, server=(), reason=answer + hint
        )
    return DigestRecord(rank=rank, leg=name, outcome=Outcome.OK, ours=ours, server=answer)
