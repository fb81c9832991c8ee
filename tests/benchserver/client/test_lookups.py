"""LOOKUP and what it leaves to be settled, over a scripted connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from unittest.mock import ANY

import pytest

from benchserver.client.connection import (
    CallFailedError,
    ConnectionLostError,
    NoAnswerError,
)
from benchserver.client.keys import KeyMaker
from benchserver.client.lookups import Hits, LookupDesk, next_poll_ns
from benchserver.client.scripted import NEVER, Answer, Script, ScriptedConnection, in_turn
from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.history import EndRecord, Outcome
from protocol.dialect import Dialect
from protocol.dialects import V043, V051, V056
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op

LOOKUP, QUERY = Op.LOOKUP, Op.QUERY_PREFETCH_STATUS
FREE, END = Op.FREE_LOOKUP_LOCKS, Op.END_SESSION


def taking(result: Any, after_ns: int = NS_PER_MS) -> Answer:
    return Answer(result=result, after_ns=after_ns)


def server(
    *counts: Any, dialect: Dialect = V056, job: Any = VOID, lines: Script | None = None
) -> ScriptedConnection:
    """Give the results of QUERY in turn, the last for ever; all takes a millisecond."""
    script = {
        LOOKUP: taking(job),
        QUERY: in_turn(*(taking(count) for count in counts or (0,))),
        FREE: taking(VOID),
        END: taking(VOID),
        **(lines or {}),
    }
    return ScriptedConnection(script, dialect, clock=VirtualClock(), timeout_ns=60 * NS_PER_S)


def freed_by(rpc: ScriptedConnection) -> list[tuple[int | None, int]]:
    """Return rank and readers of every FREE_LOOKUP_LOCKS."""
    return [(c[1].worker_id, c[1].num_kv_readers) for c in rpc.calls if c[0] is FREE]


def desk_of(rpc: ScriptedConnection, kv_ranks: Sequence[int], *, mla: bool = False) -> LookupDesk:
    keys = KeyMaker(
        model_name="m",
        world_size=1 if mla else len(kv_ranks),
        cache_salt="s",
        readers=len(kv_ranks) if mla else 1,
    )
    return LookupDesk(
        rpc,
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


@pytest.mark.asyncio
async def test_a_lookup_asks_for_all_ranks_and_waits_for_the_count() -> None:
    rpc = server(VOID, VOID, 2)
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
    assert hits == Hits(chunks=2, began_ns=0, ended_ns=4_625_000)
    assert request.locked_ranks == [0, 1]
    assert desk.open_requests == {"r": request}


@pytest.mark.asyncio
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
async def test_settling_frees_the_locks_of_those_who_did_not_read(
    kv_ranks: tuple[int, ...], mla: bool, read: tuple[int, ...], freed: list[tuple[int, int]]
) -> None:
    rpc = server(3)
    desk = desk_of(rpc, kv_ranks, mla=mla)
    request = desk.open((1, 2, 3), end=3, request_id="r")
    await desk.lookup(request)
    assert rpc.calls[0][1].num_kv_readers == (len(kv_ranks) if mla else 1)
    for rank in read:
        request.locked_ranks.remove(rank)
    assert await desk.settle(request) == ends(*["FREE_LOOKUP_LOCKS"] * len(freed), "END_SESSION")
    assert freed_by(rpc) == freed
    # After END_SESSION a lock cannot be freed: it comes last.
    assert rpc.calls[-1] == (END, "r")
    # Older servers free as many locks as this number says, where ranks share objects.
    workers = [call[2] for call in rpc.calls if call[0] is FREE]
    assert workers == [count if mla else len(kv_ranks) for _, count in freed]
    assert desk.open_requests == {}


@pytest.mark.asyncio
async def test_a_miss_leaves_nothing_to_free() -> None:
    rpc = server(0)
    desk = desk_of(rpc, (0, 1))
    request = desk.open((1,), end=1, request_id="r")
    assert (await desk.lookup(request)).chunks == 0
    assert await desk.settle(request) == ends("END_SESSION")
    assert freed_by(rpc) == []


@pytest.mark.asyncio
async def test_a_request_that_was_never_looked_up_is_only_ended() -> None:
    rpc = server()
    desk = desk_of(rpc, (0, 1))
    assert await desk.settle(desk.open((1,), end=1, request_id="r")) == ends("END_SESSION")
    assert rpc.calls == [(END, "r")]


@pytest.mark.asyncio
@pytest.mark.parametrize("op", [LOOKUP, QUERY])
async def test_without_a_count_the_request_counts_as_locked(op: Op) -> None:
    rpc = server(lines={op: NoAnswerError(op, "no answer within 1 s")})
    desk = desk_of(rpc, (0, 1))
    request = desk.open((1,), end=1, request_id="r")
    with pytest.raises(CallFailedError):
        await desk.lookup(request)
    await desk.settle(request)
    assert freed_by(rpc) == [(0, 1), (1, 1)]


@pytest.mark.asyncio
async def test_an_endless_prefetch_is_no_answer_and_no_miss() -> None:
    rpc = server(VOID)
    desk = desk_of(rpc, (0,))
    request = desk.open((1,), end=1, request_id="r")
    text = r"^QUERY_PREFETCH_STATUS: the prefetch was still running after 1 s$"
    with pytest.raises(NoAnswerError, match=text):
        await desk.lookup(request)
    assert NS_PER_S < rpc.clock.now_ns() < NS_PER_S + 30 * NS_PER_MS
    assert len(rpc.calls) < 80
    assert request.locked_ranks == [0]


@pytest.mark.asyncio
async def test_a_status_that_was_read_long_after_it_was_asked_for_is_asked_for_again() -> None:
    """This process stood still while the answer lay there: the prefetch has gone on since."""

    rpc = server(lines={QUERY: in_turn(taking(VOID, 5 * NS_PER_S), taking(1))})
    desk = desk_of(rpc, (0,))
    assert (await desk.lookup(desk.open((1,), end=1, request_id="r"))).chunks == 1


@pytest.mark.asyncio
async def test_failures_of_settling_are_records() -> None:
    rpc = server(
        1, lines={FREE: NoAnswerError(FREE, "slow"), END: ConnectionLostError(END, "lost")}
    )
    desk = desk_of(rpc, (0,))
    request = desk.open((1,), end=1, request_id="r")
    await desk.lookup(request)
    assert await desk.settle(request) == [
        end("FREE_LOOKUP_LOCKS", Outcome.UNKNOWN, "slow"),
        end("END_SESSION", Outcome.UNKNOWN, "lost"),
    ]
    assert desk.open_requests == {}


@pytest.mark.asyncio
async def test_settling_that_was_interrupted_is_finished_and_frees_nothing_twice() -> None:
    rpc = server(1, lines={END: in_turn(asyncio.CancelledError(), taking(VOID))})
    desk = desk_of(rpc, (0, 1))
    request = desk.open((1,), end=1, request_id="r")
    await desk.lookup(request)
    with pytest.raises(asyncio.CancelledError):
        await desk.settle(request)
    assert desk.open_requests == {"r": request}
    assert await desk.settle(request) == ends("END_SESSION")
    assert freed_by(rpc) == [(0, 1), (1, 1)]
    assert desk.open_requests == {}


def test_pauses_between_polls_grow_and_are_bounded() -> None:
    waits = [0]
    while len(waits) < 40:
        waits.append(next_poll_ns(waits[-1]))
    assert waits[1:4] == [250_000, 375_000, 562_500]
    assert waits == sorted(waits)
    assert waits[-1] == 20_000_000


@pytest.mark.asyncio
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
async def test_locks_of_a_chunk_that_only_some_ranks_have_are_freed_where_they_are_kept(
    dialect: Dialect,
    kv_ranks: tuple[int, ...],
    mla: bool,
    hits: int,
    freed: list[tuple[int, int]],
) -> None:
    rpc = server(hits, dialect=dialect)
    desk = desk_of(rpc, kv_ranks, mla=mla)
    request = desk.open((1, 2, 3, 4, 5), end=4, request_id="r")
    assert (await desk.lookup(request)).chunks == hits
    frees = [call for call in rpc.calls if call[0] is FREE]
    assert [(c[1].start, c[1].end) for c in frees] == freed
    assert all(c[1].worker_id is None and c[2] == len(kv_ranks) for c in frees)


@pytest.mark.asyncio
async def test_a_lookup_that_gives_a_job_is_asked_by_its_job() -> None:
    rpc = server(2, dialect=V043, job=77)
    desk = desk_of(rpc, (0,))
    request = desk.open((1, 2, 3), end=2, request_id="r")
    assert (await desk.lookup(request)).chunks == 2
    assert rpc.calls[1] == (QUERY, 77)


@pytest.mark.asyncio
async def test_only_what_was_locked_is_freed() -> None:
    rpc = server(3)
    desk = desk_of(rpc, [0, 1])
    request = desk.open(tuple(range(10)), end=10, request_id="r")
    await desk.lookup(request)
    assert (request.locked_ranks, request.locked_end) == ([0, 1], 6)
    await desk.settle(request)
    ends = [call[1].end for call in rpc.calls if call[0] is FREE]
    assert ends == [6, 6]


@pytest.mark.asyncio
async def test_without_a_count_all_that_was_asked_for_may_be_locked() -> None:
    rpc = server(lines={QUERY: NEVER})
    desk = desk_of(rpc, [0])
    request = desk.open(tuple(range(10)), end=10, request_id="r")
    with pytest.raises(NoAnswerError):
        await desk.lookup(request)
    assert (request.locked_ranks, request.locked_end) == ([0], 10)


@pytest.mark.parametrize(("field", "freed"), [("model_name", []), ("cache_salt", [(0, 1)])])
@pytest.mark.asyncio
async def test_without_a_count_nothing_is_freed_of_a_model_that_nobody_registered(
    field: str, freed: list[tuple[int, int]]
) -> None:
    rpc = server(lines={QUERY: NEVER})
    desk = desk_of(rpc, [0])
    change: dict[str, Any] = {field: "nobody"}
    keys = desk.open((1, 2), end=2, request_id="r").keys
    other = desk.open((1, 2), end=2, request_id="s", keys=replace(keys, **change))
    with pytest.raises(NoAnswerError):
        await desk.lookup(other)
    await desk.settle(other)
    assert freed_by(rpc) == freed
    rpc = server(1)
    desk = desk_of(rpc, [0])
    # What is hit all the same is locked.
    other = desk.open((1, 2), end=2, request_id="s", keys=replace(keys, **change))
    await desk.lookup(other)
    await desk.settle(other)
    assert freed_by(rpc) == [(0, 1)]
