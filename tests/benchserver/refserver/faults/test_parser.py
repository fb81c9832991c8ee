"""A switch's text: what it means, and one line for whatever means nothing."""

from __future__ import annotations

import asyncio
import os
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchserver.clock import NS_PER_MS
from benchserver.errors import UsageError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.faults.moments import EVERY_CALL, Turns
from benchserver.refserver.faults.parser import MAX_SWITCHES, Switch, parse_switch, parse_switches
from benchserver.refserver.faults.settings import ALL_OPS, EVERY_RANK, LAST, PARAMS, Settings, Step
from benchserver.refserver.faults.table import FAULTS
from benchserver.refserver.server import serve
from benchserver.refserver.store.arena import create_shared
from protocol.ops import Op


def test_a_bare_name_has_the_defaults_and_every_call() -> None:
    switch = parse_switch("late_reply")
    assert switch.fault is FAULTS["late_reply"]
    assert switch.settings == switch.fault.defaults
    assert switch.moment == EVERY_CALL
    assert switch.text == "late_reply"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("late_reply:STORE,300ms", {"ops": {Op.STORE}, "delay_ns": 300 * NS_PER_MS}),
        ("late_reply:delay=1.5s", {"ops": {Op.RETRIEVE}, "delay_ns": 1500 * NS_PER_MS}),
        ("late_reply:STORE,rank=1", {"ops": {Op.STORE}, "rank": 1}),
        ("slow_prefetch:30ms", {"delay_ns": 30 * NS_PER_MS}),
        ("slow_prefetch:0.5ms", {"delay_ns": NS_PER_MS // 2}),
        ("flip_byte:layer=1,rank=1", {"layer": 1, "rank": 1, "chunk": LAST}),
        ("flip_byte:2,0,1", {"layer": 2, "rank": 0, "chunk": 1}),
        ("flip_byte:chunk=0", {"layer": LAST, "rank": EVERY_RANK, "chunk": 0}),
        ("delay:ANY", {"ops": ALL_OPS}),
        ("crash:LOOKUP,arrived", {"ops": {Op.LOOKUP}, "step": Step.ARRIVED}),
        ("crash:at=replied", {"ops": {Op.RETRIEVE}, "step": Step.REPLIED}),
    ],
)
def test_arguments(text: str, settings: dict[str, object]) -> None:
    found = parse_switch(text).settings
    assert {name: getattr(found, name) for name in settings} == settings


def test_arguments_and_moment_together() -> None:
    switch = parse_switch("flip_byte:layer=1@3+")
    assert (switch.settings.layer, switch.moment) == (1, Turns(first=3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no such fault; known: noop_retrieve, "),
        ("flip", "no such fault"),
        ("FLIP_BYTE", "no such fault"),
        (" flip_byte", "no such fault"),
        ("flip_byte ", "no such fault"),
        ("flip_byte:", "layer '', expected the number of a layer"),
        ("flip_byte:x", "layer 'x', expected the number of a layer, from 0"),
        ("flip_byte:layer=-1", "layer '-1'"),
        ("flip_byte:layer=1_0", "layer '1_0'"),
        ("flip_byte:layer=٣", r"layer '\u0663'"),
        ("flip_byte:layer=1000001", "layer '1000001'"),
        ("flip_byte:layer=1,layer=2", "layer is given twice"),
        ("flip_byte:1,layer=2", "layer is given twice"),
        ("flip_byte:rank=1,2", "'2' needs a name, one of layer, rank, chunk"),
        ("flip_byte:1,2,3,4", "'4' needs a name"),
        ("flip_byte:delay=1s", "no parameter 'delay', expected layer, rank, chunk"),
        ("leak_session:1", "it takes no arguments"),
        ("leak_session:", "it takes no arguments"),
        ("leak_session@", "is not a moment"),
        ("leak_session@@1", "is not a moment"),
        ("lost_reply:STOER", "op 'STOER', expected an operation such as STORE"),
        ("lost_reply:store", "op 'store'"),
        ("late_reply:STORE,300", "delay '300', expected a duration such as 300ms"),
        ("late_reply:STORE,-1s", "delay '-1s'"),
        ("late_reply:STORE,3601s", "delay '3601s'"),
        ("crash:STORE,never", "at 'never', expected arrived, done or replied"),
        ("leak_session" + "@" * 500, "expected at most 200"),
    ],
)
def test_mistakes(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_switch(text)
    line = str(caught.value)
    assert expected in line
    assert line.startswith("fault '")
    assert line.isprintable()


def test_too_many_at_once() -> None:
    with pytest.raises(UsageError, match=f"expected at most {MAX_SWITCHES}"):
        parse_switches(["leak_session"] * (MAX_SWITCHES + 1))


@pytest.mark.asyncio
async def test_a_server_is_not_started_with_a_mistake() -> None:
    config = ServerConfig(
        l1_bytes=1 << 20,
        shm_name=f"parser-test-{os.getpid()}",
        faults=("flip_byte", "nonsense"),
    )
    said = list[object]()
    taken = create_shared(config.pool_name, 1 << 12)  # opening the pool would fail with FatalError
    try:
        with pytest.raises(UsageError, match="no such fault"):
            await serve(
                config,
                on_ready=lambda *ports: said.append(ports),
                stop=asyncio.Event(),
                journal=said.append,
            )
    finally:
        taken.close()
    assert not said


def read(text: str) -> Switch | UsageError:
    try:
        return parse_switch(text)
    except UsageError as error:
        return error


pieces = st.sampled_from(
    [*FAULTS, *PARAMS, *Op.__members__, *":,=@+.", "..", "p=", "seed=", "ms", "s", "0.5", "3"]
)
texts = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=40)


@given(texts | st.text(alphabet=string.printable, max_size=40))
@example("flip_byte:layer=1\n")
@example("slow_prefetch:999999999.999999s")
@example("\ud800")
def test_any_text_is_a_switch_or_a_usage_error(text: str) -> None:
    found = read(text)
    if isinstance(found, Switch):
        assert found.text == text
    else:
        assert str(found).isprintable()


@pytest.mark.parametrize("name", FAULTS)
def test_each_row_says_what_it_is_and_its_form_reads_back(name: str) -> None:
    fault = FAULTS[name]
    assert fault.name == name
    assert fault.meaning
    assert fault.hooks
    assert set(fault.params) <= set(PARAMS)
    shown = [part for part in fault.form.partition(":")[2].split(",") if part]
    said = [part for part in shown if part.partition("=")[2] not in ("last", "every")]
    text = f"{name}:{','.join(said)}" if said else name
    assert parse_switch(text).settings == fault.defaults


def test_a_parameter_that_is_not_declared_is_never_set() -> None:
    for fault in FAULTS.values():
        declared = {PARAMS[name].field for name in fault.params}
        untouched = Settings()
        for field in {param.field for param in PARAMS.values()} - declared:
            assert getattr(fault.defaults, field) == getattr(untouched, field), fault.name
