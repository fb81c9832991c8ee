"""PINGs over scripted connections, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from benchserver.client.connection import CallFailedError, ConnectionLostError, NoAnswerError
from benchserver.client.scripted import ScriptedConnection
from benchserver.client.worker import Worker
from benchserver.clock import VirtualClock
from benchserver.stage.heartbeat import INTERVAL_NS, Heartbeat, interval_ns
from protocol.dialects import V056
from protocol.ops import Op


def worker_of(rank: int, rpc: ScriptedConnection) -> Worker:
    unused = cast(Any, None)
    return Worker(
        rank=rank,
        kv_rank=rank,
        instance_id=100 + rank,
        rpc=rpc,
        pool=unused,
        mode=unused,
    )


async def beat(*answers: Any) -> tuple[list[ScriptedConnection], list[tuple[str, str]]]:
    """Let some rounds of PINGs pass; return the connections, and what was missed."""
    clock, missed = VirtualClock(), list[tuple[str, str]]()
    rpcs = [ScriptedConnection({Op.PING: answer}, V056, clock=clock) for answer in answers]
    workers = [worker_of(rank, rpc) for rank, rpc in enumerate(rpcs)]

    async def miss(place: str, text: str) -> None:
        missed.append((place, text))

    heartbeat = Heartbeat(
        workers,
        every_ns=INTERVAL_NS,
        clock=clock,
        missed=miss,
    )
    await heartbeat.beat()
    assert clock.now_ns() == 0
    task = asyncio.ensure_future(heartbeat.run())
    await clock.sleep_ns(3 * INTERVAL_NS + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for rpc in rpcs:
        await rpc.close()
    return rpcs, missed


@pytest.mark.asyncio
async def test_every_worker_pings_with_its_id_at_once_and_again() -> None:
    rpcs, missed = await beat(True, True)
    assert missed == []
    for rank, rpc in enumerate(rpcs):
        assert len(rpc.calls) == 4
        assert set(rpc.calls) == {(Op.PING, 100 + rank)}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NoAnswerError(Op.PING, "no answer within 5 s"), "no answer within 5 s"),
        (ConnectionLostError(Op.PING, "the connection was lost"), "the connection was lost"),
        (False, "PING answered False: the server does not know our registration any more"),
    ],
)
@pytest.mark.asyncio
async def test_a_ping_without_a_good_answer_is_told_and_the_others_go_on(
    answer: Any, text: str
) -> None:
    rpcs, missed = await beat(answer, True)
    assert {place for place, _ in missed} == {"rank=0"}
    assert all(text in told for _, told in missed)
    assert len(missed) == len(rpcs[0].calls) == 4
    assert len(rpcs[1].calls) == 4


@pytest.mark.asyncio
async def test_errors_of_our_own_are_not_swallowed() -> None:
    async def miss(*_: str) -> None:
        raise AssertionError

    clock = VirtualClock()
    rpc = ScriptedConnection({Op.PING: ValueError("ours")}, V056, clock=clock)
    heartbeat = Heartbeat([worker_of(0, rpc)], every_ns=1, clock=clock, missed=miss)
    with pytest.raises(ValueError, match="ours"):
        await heartbeat.run()
    assert issubclass(NoAnswerError, CallFailedError)


@pytest.mark.parametrize(
    ("reap_timeout_s", "seconds"),
    [(0.0, 10), (1e9, 10), (120.0, 10), (30.0, 10), (3.0, 1), (0.6, 0.2), (0.001, 0.1)],
)
def test_a_server_that_gives_up_sooner_hears_of_us_more_often(
    reap_timeout_s: float, seconds: float
) -> None:
    assert interval_ns(reap_timeout_s) == int(seconds * 1e9)
