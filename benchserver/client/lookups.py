"""LOOKUP, its status queries, and the locks and sessions that it leaves to be settled.

A LOOKUP locks every object that it hits, once for each reader.  RETRIEVE gives a reader's lock
back, FREE_LOOKUP_LOCKS what nobody read; END_SESSION gives none.  What is open is kept, so that an
interrupted run can still settle it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchserver.client.connection import CallFailedError, Connection, NoAnswerError
from benchserver.client.keys import KeyMaker
from benchserver.clock import NS_PER_MS, NS_PER_S, Clock
from benchserver.history import EndRecord, Outcome
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op

_FIRST_POLL_NS = NS_PER_MS // 4
_LONGEST_POLL_NS = 20 * NS_PER_MS
_POLL_GROWTH = 1.5


def next_poll_ns(wait_ns: int) -> int:
    """Return the pause after one of `wait_ns`: short at first, bounded later; 0 starts it."""
    if wait_ns == 0:
        return _FIRST_POLL_NS
    return min(int(wait_ns * _POLL_GROWTH), _LONGEST_POLL_NS)


@dataclass(slots=True, kw_only=True)
class OpenRequest:
    """One request id between its first call and END_SESSION.

    `locked_ranks` has the KV rank of every reader whose lock may still be held, on the chunks
    `[0, locked_end)`: a LOOKUP locks what it hits and no more, and locks carry no name, so that to
    free more would free those of others.  `keys` makes the cache keys of its calls: another
    tenant's for a request that must miss.
    """

    keys: KeyMaker
    tokens: Sequence[int]
    end: int
    request_id: str
    locked_ranks: list[int] = field(default_factory=list)
    locked_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """A LOOKUP's answer, from its request to the answer of the last status query."""

    chunks: int
    began_ns: int
    ended_ns: int


class LookupDesk:
    """Opens, looks up and settles requests over one connection."""

    def __init__(
        self,
        rpc: Connection,
        keys: KeyMaker,
        *,
        kv_ranks: Sequence[int],
        tp_size: int,
        chunk_tokens: int,
        clock: Clock,
        timeout_ns: int,
    ) -> None:
        """`kv_ranks` has one entry for each reader: `[0, 1]` for TP 2, `[0, 0]` for MLA."""
        self._chunk_tokens = chunk_tokens
        self._rpc = rpc
        self._keys = keys
        self._kv_ranks = list(kv_ranks)
        self._tp_size = tp_size
        self._clock = clock
        self._timeout_ns = timeout_ns
        self.open_requests: dict[str, OpenRequest] = {}

    def open(
        self, tokens: Sequence[int], *, end: int, request_id: str, keys: KeyMaker | None = None
    ) -> OpenRequest:
        """Open a request, before its first call; `keys` None: those of the run."""
        request = OpenRequest(
            keys=keys or self._keys, tokens=tokens, end=end, request_id=request_id
        )
        self.open_requests[request_id] = request
        return request

    async def lookup(self, request: OpenRequest) -> Hits:
        """LOOKUP all ranks and wait for the hit count.

        Raises CallFailedError without a count; the request then counts as locked, unless it asks
        for a model that nobody has registered: that has no chunks, and 0.5.6 would not answer a
        FREE_LOOKUP_LOCKS for it.
        """
        key = request.keys.key(
            request.tokens, end=request.end, request_id=request.request_id, kv_rank=None
        )
        began_ns = self._clock.now_ns()
        ours = request.keys.model_name == self._keys.model_name
        request.locked_ranks = list(self._kv_ranks) if ours else []
        request.locked_end = request.end
        reply = await self._rpc.call(Op.LOOKUP, key, self._tp_size)
        asked_by = request.request_id if reply.result is VOID else reply.result
        chunks = await self._hit_count(asked_by, began_ns)
        request.locked_end = min(request.end, chunks * self._chunk_tokens)
        request.locked_ranks = list(self._kv_ranks) if chunks else []
        if self._rpc.dialect.lookup_keeps_part and key.world_size > 1:
            await self._free_partial_chunk_052(key, chunks)
        return Hits(chunks=chunks, began_ns=began_ns, ended_ns=self._clock.now_ns())

    async def _free_partial_chunk_052(self, key: CacheKey, chunks: int) -> None:
        """Give back the locks of the chunk that only some ranks had (0.5.2 and before)."""
        start, end = chunks * self._chunk_tokens, (chunks + 1) * self._chunk_tokens
        if end <= key.end:
            part = replace(key, start=start, end=end)
            await self._rpc.call(Op.FREE_LOOKUP_LOCKS, part, self._tp_size)

    async def _hit_count(self, asked_by: str | int, began_ns: int) -> int:
        """Ask by request id, or by the job id that LOOKUP gave (0.4.1 to 0.4.3)."""
        wait_ns = 0
        while True:
            # An answer says how things stood when it was asked for, however late it is read.
            asked_ns = self._clock.now_ns()
            reply = await self._rpc.call(Op.QUERY_PREFETCH_STATUS, asked_by)
            if reply.result is not VOID:
                return int(reply.result)
            if asked_ns - began_ns > self._timeout_ns:
                raise NoAnswerError(
                    Op.QUERY_PREFETCH_STATUS,
                    f"the prefetch was still running after {self._timeout_ns / NS_PER_S:g} s",
                )
            wait_ns = next_poll_ns(wait_ns)
            await self._clock.sleep_ns(wait_ns)

    async def settle(
        self, request: OpenRequest, *, timeout_ns: int | None = None
    ) -> list[EndRecord]:
        """Free what nobody read and end the session; what failed is in the records.

        The locks go first: after END_SESSION they could not be freed (0.5.6).  `timeout_ns` is that
        of each call, if not the run's.
        """
        records: list[EndRecord] = []
        for kv_rank in sorted(set(request.locked_ranks)):
            records.append(await self._free(request, kv_rank, timeout_ns))
            # Settling again after an interruption must not free another request's locks.
            request.locked_ranks = [rank for rank in request.locked_ranks if rank != kv_rank]
        records.append(await self._end(request, timeout_ns))
        self.open_requests.pop(request.request_id, None)
        return records

    async def _free(self, request: OpenRequest, kv_rank: int, timeout_ns: int | None) -> EndRecord:
        """Free the locks of a rank's readers that have not read."""
        readers = request.locked_ranks.count(kv_rank)
        key = request.keys.key(
            request.tokens,
            end=request.locked_end,
            request_id=request.request_id,
            kv_rank=kv_rank,
            readers=readers,
        )
        # Before 0.5.5 the locks to free are counted by this number alone, as in LOOKUP.
        workers = readers * key.world_size
        return await self._call(request, Op.FREE_LOOKUP_LOCKS, key, workers, timeout_ns=timeout_ns)

    async def _end(self, request: OpenRequest, timeout_ns: int | None) -> EndRecord:
        return await self._call(request, Op.END_SESSION, request.request_id, timeout_ns=timeout_ns)

    async def _call(
        self, request: OpenRequest, op: Op, *args: Any, timeout_ns: int | None
    ) -> EndRecord:
        """Return the record of a call that ends something, whatever became of it."""
        outcome, reason, began_ns = Outcome.OK, "", self._clock.now_ns()
        try:
            await self._rpc.call(op, *args, timeout_ns=timeout_ns)
        except CallFailedError as error:
            outcome, reason = Outcome.UNKNOWN, error.reason
        return EndRecord(
            name=op.name,
            request_id=request.request_id,
            outcome=outcome,
            began_ns=began_ns,
            ended_ns=self._clock.now_ns(),
            reason=reason,
        )
