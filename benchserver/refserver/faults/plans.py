"""Faults of engine_driven plans: slots and inline streams that are not what they should be."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchserver.refserver.faults.call import Call
from benchserver.refserver.faults.fault import Act
from benchserver.refserver.faults.replies import NOISE_SEED
from protocol.messages import RetrievePlan
from protocol.ops import Op


def planned(
    alter: Callable[[Call, RetrievePlan], RetrievePlan], *, inline: bool
) -> Mapping[Op, Act]:
    """Return what alters the plans of PREPARE_RETRIEVE that have slots, or inline data."""

    async def prepare(call: Call) -> Any:
        plan: RetrievePlan = await call.proceed()
        concerned = bool(plan.data if inline else plan.slots)
        return alter(call, plan) if concerned and call.fires() else plan

    return {Op.PREPARE_RETRIEVE: prepare}


def slot_out_of_pool(call: Call, plan: RetrievePlan) -> RetrievePlan:
    """Name a slot behind the end of the pool."""
    beyond = replace(plan.slots[-1], offset=call.core.arena.nbytes)
    return replace(plan, slots=(*plan.slots[:-1], beyond))


def slot_missing(_call: Call, plan: RetrievePlan) -> RetrievePlan:
    """Leave the last slot out."""
    return replace(plan, slots=plan.slots[:-1])


def inline_garbled(_call: Call, plan: RetrievePlan) -> RetrievePlan:
    """Replace the stream of tensors by noise of the same length."""
    return replace(plan, data=random.Random(NOISE_SEED).randbytes(len(plan.data)))


def inline_cut(_call: Call, plan: RetrievePlan) -> RetrievePlan:
    """Send half of the stream."""
    return replace(plan, data=plan.data[: len(plan.data) // 2])
