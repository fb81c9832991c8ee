"""Faults of replies on their way to the client, and of requests that get none."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import msgpack

from benchserver.clock import NS_PER_S
from benchserver.refserver.faults.call import Call, ReplyCall
from benchserver.refserver.faults.fault import ReplyAct, instead
from benchserver.refserver.faults.settings import Step
from benchserver.refserver.refusal import RefusalError
from protocol.dialects import V056
from protocol.ops import Op

NOISE_BYTES = 24
NOISE_SEED = 20
UNSENT_UID = 1 << 30
"""No client of ours counts this far."""

CRASH_CODE = 70
FLUSH_NS = NS_PER_S // 20
"""After this time a reply has left the process."""


def _when_it_fires(act: ReplyAct) -> ReplyAct:
    async def hooked(reply: ReplyCall) -> None:
        await (act(reply) if reply.active.fires() else reply.send_unaltered())

    return hooked


@_when_it_fires
async def lose(_reply: ReplyCall) -> None:
    """Send nothing."""


@_when_it_fires
async def delay(reply: ReplyCall) -> None:
    """Send the reply later; the client's other calls are answered meanwhile."""
    reply.active.start(_send_later(reply))


async def _send_later(reply: ReplyCall) -> None:
    await reply.active.core.clock.sleep_ns(reply.active.settings.delay_ns)
    await reply.send_unaltered()


@_when_it_fires
async def duplicate(reply: ReplyCall) -> None:
    """Send the reply twice."""
    await reply.send_unaltered()
    await reply.send_unaltered()


@_when_it_fires
async def garble(reply: ReplyCall) -> None:
    """Send noise in place of the result."""
    uid, op, *_ = reply.frames
    await reply.send((uid, op, random.Random(NOISE_SEED).randbytes(NOISE_BYTES)))


@_when_it_fires
async def cut(reply: ReplyCall) -> None:
    """Send the uid alone."""
    await reply.send(reply.frames[:1])


@_when_it_fires
async def answer_other_op(reply: ReplyCall) -> None:
    """Send the reply as one to another operation."""
    uid, _, *rest = reply.frames
    other = Op.NOOP if reply.request.op is not Op.NOOP else Op.PING
    await reply.send((uid, msgpack.packb(V056.ops[other].id), *rest))


@_when_it_fires
async def answer_other_uid(reply: ReplyCall) -> None:
    """Send the reply under a uid that was never used, and none under its own."""
    await reply.send((msgpack.packb(UNSENT_UID), *reply.frames[1:]))


@_when_it_fires
async def answer_unsent(reply: ReplyCall) -> None:
    """Send the reply, and the same as an answer to a request that was never made."""
    await reply.send((msgpack.packb(UNSENT_UID), *reply.frames[1:]))
    await reply.send_unaltered()


@instead
async def lose_request(call: Call) -> Any:
    """Do nothing, and say nothing."""
    raise RefusalError(f"a fault swallows {call.op.name}")


@instead
async def slow_down(call: Call) -> Any:
    """Be slow, and right."""
    await call.core.clock.sleep_ns(call.settings.delay_ns)
    return await call.proceed()


@instead
async def slow_by_share(call: Call) -> Any:
    """Take a share of the time longer that the call has taken, and be right."""
    began_ns = call.now_ns
    result = await call.proceed()
    spent_ns = call.now_ns - began_ns
    await call.core.clock.sleep_ns(spent_ns * call.settings.share_percent // 100)
    return result


@instead
async def freeze(call: Call) -> Any:
    """Stop the whole process for a while, HTTP too: its event loop does nothing else."""
    time.sleep(call.settings.delay_ns / NS_PER_S)  # noqa: ASYNC251 - blocking is the fault
    return await call.proceed()


async def crash(call: Call) -> Any:
    """End the process on arrival of a call, or once it is done and not answered."""
    step = call.settings.step
    if step is Step.ARRIVED and call.fires():
        _die(call.core.journal.line, call.op)
    result = await call.proceed()
    if step is Step.DONE and call.fires():
        _die(call.core.journal.line, call.op)
    return result


async def crash_after(reply: ReplyCall) -> None:
    """End the process once a reply has left it."""
    await reply.send_unaltered()
    if reply.active.settings.step is Step.REPLIED and reply.active.fires():
        await reply.active.core.clock.sleep_ns(FLUSH_NS)
        _die(reply.active.core.journal.line, reply.request.op)


def _die(say: Any, op: Op) -> None:
    say(f"a fault ends the server in {op.name}")
    os._exit(CRASH_CODE)
