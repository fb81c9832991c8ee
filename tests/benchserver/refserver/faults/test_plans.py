"""Plans of engine_driven reads that are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchserver.refserver.faults.call import Active, Call
from benchserver.refserver.faults.moments import EVERY_CALL
from benchserver.refserver.faults.plans import (
    inline_cut,
    inline_garbled,
    planned,
    slot_missing,
    slot_out_of_pool,
)
from benchserver.refserver.faults.settings import Settings
from protocol.messages import RetrievePlan, Slot
from protocol.ops import Op
from tests.faultstage import L1_BYTES, Stage

FIRST, SECOND = (Slot(offset=offset, length=8, shape=(2, 2), dtype="float16") for offset in (0, 64))
IN_POOL = RetrievePlan(success=True, slots=(FIRST, SECOND), data=b"")
INLINE = RetrievePlan(success=True, slots=(), data=b"0123456789")
NOTHING = RetrievePlan(success=False, slots=(), data=b"")


def call_of(stage: Stage, plan: RetrievePlan) -> Call:
    async def handle(_args: Sequence[Any]) -> Any:
        return plan

    active = Active(
        text="x",
        settings=Settings(),
        moment=EVERY_CALL,
        core=stage.core,
        start=stage.later.append,
    )
    return Call(active=active, op=Op.PREPARE_RETRIEVE, args=(), handle=handle)


@pytest.mark.asyncio
async def test_slots(stage: Stage) -> None:
    call = call_of(stage, IN_POOL)
    assert slot_missing(call, IN_POOL).slots == (FIRST,)
    outside = slot_out_of_pool(call, IN_POOL)
    assert outside.slots == (FIRST, replace(SECOND, offset=L1_BYTES))


@pytest.mark.asyncio
async def test_inline_streams(stage: Stage) -> None:
    call = call_of(stage, INLINE)
    assert inline_cut(call, INLINE).data == b"01234"
    noise = inline_garbled(call, INLINE).data
    assert len(noise) == len(INLINE.data)
    assert noise != INLINE.data
    assert inline_garbled(call, INLINE).data == noise


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("plan", "inline", "fires"),
    [
        (IN_POOL, False, True),
        (IN_POOL, True, False),
        (INLINE, True, True),
        (INLINE, False, False),
        (NOTHING, True, False),
        (NOTHING, False, False),
    ],
)
async def test_only_plans_of_the_kind_it_is_meant_for_are_altered(
    stage: Stage, plan: RetrievePlan, inline: bool, fires: bool
) -> None:
    call = call_of(stage, plan)
    [act] = planned(lambda _call, _plan: NOTHING, inline=inline).values()
    assert await act(call) == (NOTHING if fires else plan)
    assert call.active.fired == fires
