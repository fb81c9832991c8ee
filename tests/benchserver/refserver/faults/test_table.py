"""The rows of all faults: named once, explained, and none that makes the server fail."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.refserver.faults.fault import Fault
from benchserver.refserver.faults.settings import PARAMS, Settings
from benchserver.refserver.faults.table import FAULTS
from benchserver.refserver.refusal import RefusalError
from protocol.keys import CacheKey
from protocol.ops import Op
from tests.benchserver.refserver.tiers.reference import DictTier
from tests.faultstage import staged

# Whatever a client sends, no fault makes the server fail: an error would end it.

ints = st.sampled_from([-1, 0, 1, 2, 4, 8, 12, 2**40])

keys = st.builds(
    CacheKey,
    model_name=st.just("m"),
    world_size=st.sampled_from([1, 2, -1, 2**60]),
    worker_id=st.none() | ints,
    token_ids=st.lists(st.integers(0, 2), max_size=12),
    start=ints,
    end=ints,
    request_id=st.sampled_from(["r", "s"]),
    num_kv_readers=ints,
)

tables = st.lists(st.lists(ints, max_size=6), max_size=3)

REQUESTS: dict[Op, st.SearchStrategy[Any]] = {
    Op.LOOKUP: st.tuples(keys, ints),
    Op.QUERY_PREFETCH_STATUS: st.tuples(st.sampled_from(["r", "s", "t"])),
    Op.STORE: st.tuples(keys, ints, tables, st.just(b"")),
    Op.RETRIEVE: st.tuples(keys, ints, tables, st.just(b""), ints),
    Op.PREPARE_STORE: st.tuples(keys, ints),
    Op.COMMIT_STORE: st.tuples(keys, ints, st.binary(max_size=8)),
    Op.PREPARE_RETRIEVE: st.tuples(keys, ints),
    Op.COMMIT_RETRIEVE: st.tuples(keys, ints),
    Op.END_SESSION: st.tuples(st.just("r")),
}

SAFE = [name for name in FAULTS if name not in ("crash", "freeze")]


@pytest.mark.asyncio
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(SAFE), min_size=1, max_size=4),
    st.lists(
        st.sampled_from(list(REQUESTS)).flatmap(lambda op: st.tuples(st.just(op), REQUESTS[op])),
        max_size=10,
    ),
)
async def test_no_request_makes_a_fault_fail(
    names: list[str], requests: list[tuple[Op, tuple[Any, ...]]]
) -> None:
    async with staged((DictTier(),)) as stage:
        stage.switch(*names)
        for op, args in requests:
            try:
                result = await stage.call(op, *args)
                await stage.road.deliver(op, args, result)
            except RefusalError:
                continue


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_row_has_a_name_a_meaning_and_a_hook(fault: Fault) -> None:
    assert FAULTS[fault.name] is fault
    assert fault.meaning.isprintable()
    assert not fault.meaning.endswith(".")
    assert fault.hooks
    assert len(fault.params) == len(set(fault.params))
    assert not set(fault.params) - PARAMS.keys()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_row_sets_only_what_a_switch_may_set(fault: Fault) -> None:
    settable = {PARAMS[name].field for name in fault.params}
    for field in dataclasses.fields(Settings):
        if getattr(fault.defaults, field.name) != field.default:
            assert field.name in settable, field.name
