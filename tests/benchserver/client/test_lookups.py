"""LOOKUP and what it leaves to be settled, over a scripted connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import ANY

import pytest

from benchserver.client.connection import (
    CallFailedError,
    Connection,
    ConnectionLostError,
    NoAnswerError,
)
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import Hits, LookupDesk, next_poll_ns
from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.history import EndRecord, Outcome
from protocol.dialect import Dialect
from protocol.dialects import V043, V051, V056
from protocol.keys import CacheKey
from protocol.messages import VOID, Reply
from protocol.ops import Op

LOOKUP, QUERY = Op.LOOKUP, Op.QUERY_PREFETCH_STATUS
FREE, END = Op.FREE_LOOKUP_LOCKS, Op.END_SESSION


class ScriptedRpc:
    """Gives the scripted results of QUERY in turn (the last for ever), VOID to all else."""

    def __init__(
        self, clock: VirtualClock, counts: Sequence[Any] = (0,), dialect: Dialect = V056
    ) -> None:
        self.dialect = dialect
        self.clock = clock
        self.calls: list[tuple[Any, ...]] = []
        self.errors: dict[Op, BaseException] = {}
        self.job: Any = VOID
        self._counts = list(counts)

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        self.calls.append((op, *args))
        await self.clock.sleep_ns(NS_PER_MS)
        if op in self.errors:
            raise self.errors[op]
        result: Any = self.job if op is LOOKUP else VOID
        if op is QUERY:
            result = self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]
        return Reply(uid=0, op=op, result=result, latency_ns=NS_PER_MS)

    def freed(self) -> list[tuple[int | None, int]]:
        """Return rank and readers of every FREE_LOOKUP_LOCKS."""
        return [(c[1].worker_id, c[1].num_kv_readers) for c in self.calls if c[0] is FREE]


def desk_of(rpc: ScriptedRpc, kv_ranks: Sequence[int], *, mla: bool = False) -> LookupDesk:
    keys = KeyMaker(
        model_name="m",
        world_size=1 if mla else len(kv_ranks),
        cache_salt="s",
        readers=len(kv_ranks) if mla else 1,
    )
    return LookupDesk(
        cast(Connection, rpc),
        keys,
        kv_ranks=kv_ranks,
        tp_size=len(kv_ranks),
        chunk_tokens=2,
        clock=rpc.clock,
        timeout_ns=NS_PER_S,
    )


def end(name: str, outcome: Outcome, reason: str = "", request_id: str = "r") -> EndRecord:
    """Return the record of a call that ends something, whenever that was."""
    return EndRecord(
        name=name,
        request_id=request_id,
        outcome=outcome,
        began_ns=cast(int, ANY),
        ended_ns=cast(int, ANY),
        reason=reason,
    )


def ends(*names: str, request_id: str = "r") -> list[EndRecord]:
    return [end(name, Outcome.OK, request_id=request_id) for name in names]


def test_a_lookup_asks_for_all_ranks_and_waits_for_the_count() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (VOID, VOID, 2))
        desk = desk_of(rpc, (0, 1))
        request = desk.open((1, 2, 3), end=2, request_id="r")
        hits = await desk.lookup(request)
        key = CacheKey(
            model_name="m",
            world_size=2,
            worker_id=None,
            token_ids=(1, 2, 3),
            start=0,
            end=2,
            request_id="r",
            cache_salt="s",
            num_kv_readers=1,
        )
        assert rpc.calls == [(LOOKUP, key, 2), (QUERY, "r"), (QUERY, "r"), (QUERY, "r")]
        # Four calls of 1 ms, pauses of 0.25 and 0.375 ms between them.
        assert hits == Hits(chunks=2, latency_ns=4_625_000)
        assert request.unread == [0, 1]
        assert desk.open_requests == {"r": request}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kv_ranks", "mla", "read", "freed"),
    [
        ((0,), False, (), [(0, 1)]),
        ((0,), False, (0,), []),
        ((0, 1, 2), False, (), [(0, 1), (1, 1), (2, 1)]),
        ((0, 1, 2), False, (1,), [(0, 1), (2, 1)]),
        ((0, 0, 0, 0), True, (), [(0, 4)]),
        ((0, 0, 0, 0), True, (0,), [(0, 3)]),
        ((0, 0, 0, 0), True, (0, 0, 0, 0), []),
    ],
)
def test_settling_frees_the_locks_of_those_who_did_not_read(
    kv_ranks: tuple[int, ...], mla: bool, read: tuple[int, ...], freed: list[tuple[int, int]]
) -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (3,))
        desk = desk_of(rpc, kv_ranks, mla=mla)
        request = desk.open((1, 2, 3), end=3, request_id="r")
        await desk.lookup(request)
        assert rpc.calls[0][1].num_kv_readers == (len(kv_ranks) if mla else 1)
        for rank in read:
            request.unread.remove(rank)
        assert await desk.settle(request) == ends(
            *["FREE_LOOKUP_LOCKS"] * len(freed), "END_SESSION"
        )
        assert rpc.freed() == freed
        # After END_SESSION a lock cannot be freed: it comes last.
        assert rpc.calls[-1] == (END, "r")
        # Older servers free as many locks as this number says, where ranks share objects.
        workers = [call[2] for call in rpc.calls if call[0] is FREE]
        assert workers == [count if mla else len(kv_ranks) for _, count in freed]
        assert desk.open_requests == {}

    asyncio.run(main())


def test_a_miss_leaves_nothing_to_free() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (0,))
        desk = desk_of(rpc, (0, 1))
        request = desk.open((1,), end=1, request_id="r")
        assert (await desk.lookup(request)).chunks == 0
        assert await desk.settle(request) == ends("END_SESSION")
        assert rpc.freed() == []

    asyncio.run(main())


def test_a_request_that_was_never_looked_up_is_only_ended() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock())
        desk = desk_of(rpc, (0, 1))
        assert await desk.settle(desk.open((1,), end=1, request_id="r")) == ends("END_SESSION")
        assert rpc.calls == [(END, "r")]

    asyncio.run(main())


@pytest.mark.parametrize("op", [LOOKUP, QUERY])
def test_without_a_count_the_request_counts_as_locked(op: Op) -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock())
        rpc.errors[op] = NoAnswerError(op, "no answer within 1 s")
        desk = desk_of(rpc, (0, 1))
        request = desk.open((1,), end=1, request_id="r")
        with pytest.raises(CallFailedError):
            await desk.lookup(request)
        await desk.settle(request)
        assert rpc.freed() == [(0, 1), (1, 1)]

    asyncio.run(main())


def test_an_endless_prefetch_is_no_answer_and_no_miss() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (VOID,))
        desk = desk_of(rpc, (0,))
        request = desk.open((1,), end=1, request_id="r")
        text = r"^QUERY_PREFETCH_STATUS: the prefetch was still running after 1 s$"
        with pytest.raises(NoAnswerError, match=text):
            await desk.lookup(request)
        assert NS_PER_S < rpc.clock.now_ns() < NS_PER_S + 30 * NS_PER_MS
        assert len(rpc.calls) < 80
        assert request.unread == [0]

    asyncio.run(main())


def test_a_status_that_was_read_long_after_it_was_asked_for_is_asked_for_again() -> None:
    """This process stood still while the answer lay there: the prefetch has gone on since."""

    class StandsStill(ScriptedRpc):
        async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
            if op is QUERY and QUERY not in [call[0] for call in self.calls]:
                await self.clock.sleep_ns(5 * NS_PER_S)
            return await super().call(op, *args, timeout_ns=timeout_ns)

    async def main() -> None:
        rpc = StandsStill(VirtualClock(), (VOID, 1))
        desk = desk_of(rpc, (0,))
        assert (await desk.lookup(desk.open((1,), end=1, request_id="r"))).chunks == 1

    asyncio.run(main())


def test_failures_of_settling_are_records() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (1,))
        rpc.errors = {FREE: NoAnswerError(FREE, "slow"), END: ConnectionLostError(END, "lost")}
        desk = desk_of(rpc, (0,))
        request = desk.open((1,), end=1, request_id="r")
        await desk.lookup(request)
        assert await desk.settle(request) == [
            end("FREE_LOOKUP_LOCKS", Outcome.UNKNOWN, "slow"),
            end("END_SESSION", Outcome.UNKNOWN, "lost"),
        ]
        assert desk.open_requests == {}

    asyncio.run(main())


def test_settling_that_was_interrupted_is_finished_and_frees_nothing_twice() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (1,))
        desk = desk_of(rpc, (0, 1))
        request = desk.open((1,), end=1, request_id="r")
        await desk.lookup(request)
        rpc.errors[END] = asyncio.CancelledError()
        with pytest.raises(asyncio.CancelledError):
            await desk.settle(request)
        assert desk.open_requests == {"r": request}
        del rpc.errors[END]
        assert await desk.settle(request) == ends("END_SESSION")
        assert rpc.freed() == [(0, 1), (1, 1)]
        assert desk.open_requests == {}

    asyncio.run(main())


def test_pauses_between_polls_grow_and_are_bounded() -> None:
    waits = [0]
    while len(waits) < 40:
        waits.append(next_poll_ns(waits[-1]))
    assert waits[1:4] == [250_000, 375_000, 562_500]
    assert waits == sorted(waits)
    assert waits[-1] == 20_000_000


@pytest.mark.parametrize(
    ("dialect", "kv_ranks", "mla", "hits", "freed"),
    [
        (V051, (0, 1), False, 0, [(0, 2)]),
        (V051, (0, 1), False, 1, [(2, 4)]),
        (V051, (0, 1), False, 2, []),
        (V051, (0,), False, 0, []),
        (V051, (0, 0), True, 0, []),
        (V056, (0, 1), False, 0, []),
    ],
)
def test_locks_of_a_chunk_that_only_some_ranks_have_are_freed_where_they_are_kept(
    dialect: Dialect,
    kv_ranks: tuple[int, ...],
    mla: bool,
    hits: int,
    freed: list[tuple[int, int]],
) -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (hits,), dialect)
        desk = desk_of(rpc, kv_ranks, mla=mla)
        request = desk.open((1, 2, 3, 4, 5), end=4, request_id="r")
        assert (await desk.lookup(request)).chunks == hits
        frees = [call for call in rpc.calls if call[0] is FREE]
        assert [(c[1].start, c[1].end) for c in frees] == freed
        assert all(c[1].worker_id is None and c[2] == len(kv_ranks) for c in frees)

    asyncio.run(main())


def test_a_lookup_that_gives_a_job_is_asked_by_its_job() -> None:
    async def main() -> None:
        rpc = ScriptedRpc(VirtualClock(), (2,), V043)
        rpc.job = 77
        desk = desk_of(rpc, (0,))
        request = desk.open((1, 2, 3), end=2, request_id="r")
        assert (await desk.lookup(request)).chunks == 2
        assert rpc.calls[1] == (QUERY, 77)

    asyncio.run(main())
