"""A fault's own words, and when its acts take the place of a handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchserver.clock import NS_PER_MS
from benchserver.refserver.faults.call import Active, Call, ReplyCall
from benchserver.refserver.faults.fault import Fault, after, instead
from benchserver.refserver.faults.moments import Turns
from benchserver.refserver.faults.settings import Settings
from protocol.ops import Op
from tests.faultstage import Stage


async def act(_call: Call) -> Any:
    return "the fault"


async def reply(_reply: ReplyCall) -> None:
    return


def call_of(stage: Stage, result: Any) -> Call:
    """Return a call that a fault fires at the second time; its handler has this result."""

    async def handle(_args: Sequence[Any]) -> Any:
        return result

    active = Active(
        text="x",
        settings=Settings(),
        moment=Turns(first=2),
        core=stage.core,
        start=stage.later.append,
    )
    return Call(active=active, op=Op.NOOP, args=(), handle=handle)


def test_a_fault_says_where_it_hooks_in() -> None:
    def patch(_active: Active) -> Callable[[], None]:
        return lambda: None

    assert Fault(name="x", meaning="y").hooks == ""
    fault = Fault(name="x", meaning="y", calls={Op.LOOKUP: act}, act=act, reply=reply, patch=patch)
    assert fault.hooks == "LOOKUP, the call, the reply, the server"


def test_a_fault_shows_the_switch_with_its_defaults() -> None:
    assert Fault(name="x", meaning="y").form == "x"
    defaults = Settings(ops=frozenset((Op.RETRIEVE,)), delay_ns=1500 * NS_PER_MS)
    fault = Fault(name="x", meaning="y", params=("op", "delay", "rank"), defaults=defaults)
    assert fault.form == "x:op=RETRIEVE,delay=1500ms,rank=every"


def test_a_fault_acts_on_the_operations_that_are_set_and_on_its_own() -> None:
    async def own(_call: Call) -> Any:
        return "its own"

    settings = Settings(ops=frozenset((Op.STORE, Op.LOOKUP)))
    calls = {Op.LOOKUP: own}
    assert Fault(name="x", meaning="y", calls=calls).acts(settings) == calls
    both = Fault(name="x", meaning="y", calls=calls, act=act).acts(settings)
    assert both == {Op.STORE: act, Op.LOOKUP: own}


@pytest.mark.asyncio
async def test_instead_of_a_handler_whenever_it_fires(stage: Stage) -> None:
    call = call_of(stage, "the handler")
    assert [await instead(act)(call) for _ in range(3)] == ["the handler", "the fault", "the fault"]


@pytest.mark.asyncio
async def test_after_a_handler_whenever_it_fires_at_a_result_that_is_wanted(stage: Stage) -> None:
    altered = after(lambda _call, result: -result, lambda result: result > 0)
    call = call_of(stage, 7)
    assert [await altered(call) for _ in range(3)] == [7, -7, -7]
    unwanted = call_of(stage, 0)
    assert [await altered(unwanted) for _ in range(3)] == [0, 0, 0]
    assert unwanted.active.turns == 0
