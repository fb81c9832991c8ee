"""What leaves the server in place of a reply, and what ends with it."""

from __future__ import annotations

import pytest

from benchserver.clock import NS_PER_MS
from benchserver.refserver.faults import replies
from benchserver.refserver.refusal import RefusalError
from protocol.ops import Op
from tests.faultstage import CHUNK, OP, UID, Stage, key

# Replies, and calls that get none


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "sent"),
    [
        ("lost_reply:NOOP", []),
        ("duplicate_reply:NOOP", [(UID, OP, b"\xa2OK")] * 2),
        ("cut_reply:NOOP", [(UID,)]),
        ("wrong_op:NOOP", [(UID, b"\x16", b"\xa2OK")]),
        ("foreign_uid:NOOP", [(b"\xce\x40\x00\x00\x00", OP, b"\xa2OK")]),
        (
            "unknown_uid:NOOP",
            [(b"\xce\x40\x00\x00\x00", OP, b"\xa2OK"), (UID, OP, b"\xa2OK")],
        ),
        ("lost_reply:PING", [(UID, OP, b"\xa2OK")]),
        ("lost_reply:NOOP@2", [(UID, OP, b"\xa2OK")]),
    ],
)
async def test_what_leaves_the_server(
    stage: Stage, switch: str, sent: list[tuple[bytes, ...]]
) -> None:
    stage.switch(switch)
    assert await stage.road.deliver(Op.NOOP, (), "OK") == sent


@pytest.mark.asyncio
async def test_noise_and_late_replies(stage: Stage) -> None:
    stage.switch("garbled_reply:NOOP")
    [(uid, op, noise)] = await stage.road.deliver(Op.NOOP, (), "OK")
    assert (uid, op, len(noise)) == (UID, OP, replies.NOISE_BYTES)
    stage.switch("late_reply:NOOP,300ms")
    assert await stage.road.deliver(Op.NOOP, (), "OK") == []
    started_ns = stage.core.clock.now_ns()
    await stage.later.pop()
    assert stage.core.clock.now_ns() - started_ns == 300 * NS_PER_MS
    assert stage.road.sent == [(UID, OP, b"\xa2OK")]


@pytest.mark.asyncio
async def test_requests_are_lost_or_slow(stage: Stage) -> None:
    stage.switch("lost_request:ANY@2+")
    assert await stage.call(Op.NOOP) == "OK"
    for op in (Op.NOOP, Op.GET_CHUNK_SIZE):
        with pytest.raises(RefusalError):
            await stage.call(op)
    stage.switch("delay:NOOP,50ms")
    started_ns = stage.core.clock.now_ns()
    assert await stage.call(Op.NOOP) == "OK"
    assert await stage.call(Op.GET_CHUNK_SIZE) == CHUNK
    assert stage.core.clock.now_ns() - started_ns == 50 * NS_PER_MS


@pytest.mark.asyncio
async def test_a_share_is_that_of_the_call_and_of_the_faults_before(stage: Stage) -> None:
    stage.switch("delay:NOOP,40ms", "slow:NOOP,15%")
    started_ns = stage.core.clock.now_ns()
    assert await stage.call(Op.NOOP) == "OK"
    assert stage.core.clock.now_ns() - started_ns == 46 * NS_PER_MS


@pytest.mark.asyncio
async def test_the_process_stops_for_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    stage.switch("freeze:NOOP,3s@2")
    assert [await stage.call(Op.NOOP) for _ in range(3)] == ["OK"] * 3
    assert slept == [3.0]


async def store_and_reply(stage: Stage, name: str) -> None:
    await stage.road.deliver(Op.STORE, (key(name, 0),), await stage.store(name))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("step", "handled", "sent"), [("arrived", 0, 0), ("done", 1, 0), ("replied", 1, 1)]
)
async def test_the_process_dies_where_it_is_told(
    stage: Stage, step: str, handled: int, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(Exception):
        pass

    def die(code: int) -> None:
        assert code == replies.CRASH_CODE
        raise DiedError

    monkeypatch.setattr("os._exit", die)

    stage.switch(f"crash:STORE,{step}@2")
    await store_and_reply(stage, "a")
    stage.road.sent.clear()
    with pytest.raises(DiedError):
        await store_and_reply(stage, "b")
    stage.board.replace(())
    for name, rows in (("a", 2), ("b", 2 * handled)):
        found = stage.core.rows_of(key(name, 0))
        assert stage.core.cache.lock_prefix(found, readers=1, now_ns=0) == rows
    assert len(stage.road.sent) == sent
