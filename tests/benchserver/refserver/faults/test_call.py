"""What a fault sees of a call: its turn, its rank, its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchserver.refserver.faults.call import MAX_NOTES, Active, Call, Notes, ReplyCall
from benchserver.refserver.faults.moments import Turns
from benchserver.refserver.faults.settings import EVERY_RANK, Settings
from protocol.messages import Incoming
from protocol.ops import Op
from tests.faultstage import CHUNK, OP, UID, Stage, key


def active(stage: Stage, rank: int = EVERY_RANK, first: int = 1) -> Active:
    return Active(
        text="x",
        settings=Settings(rank=rank),
        moment=Turns(first=first),
        core=stage.core,
        start=stage.later.append,
    )


def test_notes_are_bounded_and_the_oldest_go_first() -> None:
    notes = Notes()
    for number in range(MAX_NOTES):
        notes.put(number, str(number))
    notes.put(0, "again")  # now it is the newest
    notes.put("one more", "x")
    assert notes.get(1) is None
    assert notes.get(0) == "again"
    assert notes.take(0) == "again"
    assert notes.take(0) is None


@pytest.mark.asyncio
async def test_a_fault_counts_what_it_is_meant_for_and_when_it_fires(stage: Stage) -> None:
    fault = active(stage, first=3)
    assert [fault.fires() for _ in range(5)] == [False, False, True, True, True]
    assert (fault.turns, fault.fired) == (5, 3)


@pytest.mark.asyncio
async def test_a_fault_of_a_rank_is_not_meant_for_others(stage: Stage) -> None:
    of_all, of_one = active(stage), active(stage, rank=1)
    requests: list[tuple[Sequence[Any], bool]] = [
        ((key("a", 1),), True),
        ((key("a", 0),), False),
        ((key("a", None),), False),
        ((1,), False),
        ((), False),
    ]
    for args, meant in requests:
        assert of_all.concerns(args)
        assert of_one.concerns(args) == meant


@pytest.mark.asyncio
async def test_a_call_is_handled_as_it_came_or_with_another_first_argument(stage: Stage) -> None:
    async def handle(args: Sequence[Any]) -> Any:
        return args

    call = Call(active=active(stage), op=Op.STORE, args=(key("a", 0), 7), handle=handle)
    assert await call.proceed() == call.args
    assert await call.proceed_with("other") == ("other", 7)
    assert call.key is call.args[0]
    assert call.chunks == 2
    for start, end, chunks in ((0, CHUNK, 1), (CHUNK, CHUNK, 0), (2 * CHUNK, 0, 0)):
        wanted = key("a", 0, start=start, end=end)
        part = Call(active=call.active, op=Op.STORE, args=(wanted,), handle=handle)
        assert part.chunks == chunks


@pytest.mark.asyncio
async def test_a_reply_may_be_sent_as_it_is(stage: Stage) -> None:
    sent: list[tuple[bytes, ...]] = []

    async def send(frames: tuple[bytes, ...]) -> None:
        sent.append(frames)

    request = Incoming(uid=UID, op_frame=OP, op=Op.NOOP, args=())
    reply = ReplyCall(active=active(stage), request=request, frames=(UID, OP, b"x"), send=send)
    await reply.send_unaltered()
    assert sent == [(UID, OP, b"x")]
