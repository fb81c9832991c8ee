"""What may be set about a fault: each reader takes what its shower shows, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.faults.settings import (
    ALL_OPS,
    EVERY_RANK,
    LAST,
    MAX_DELAY_NS,
    MAX_INDEX,
    PARAMS,
    Settings,
    Step,
)
from protocol.ops import Op


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("op", "STORE", frozenset((Op.STORE,))),
        ("op", "ANY", ALL_OPS),
        ("delay", "300ms", 300 * NS_PER_MS),
        ("delay", "0.5ms", NS_PER_MS // 2),
        ("share", "15%", 15),
        ("rank", "0", 0),
        ("layer", str(MAX_INDEX), MAX_INDEX),
        ("chunk", "12", 12),
        *(("at", step.value, step) for step in Step),
    ],
)
def test_what_is_shown_is_what_was_read(name: str, text: str, value: Any) -> None:
    param = PARAMS[name]
    assert param.read(text) == value
    assert param.show(value) == text
    assert hasattr(Settings(), param.field)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rank", EVERY_RANK, "every"),
        ("layer", LAST, "last"),
        ("chunk", LAST, "last"),
        ("op", frozenset((Op.STORE, Op.LOOKUP)), "LOOKUP/STORE"),
        ("delay", 2 * NS_PER_S, "2000ms"),
    ],
)
def test_defaults_are_shown_in_words(name: str, value: Any, text: str) -> None:
    assert PARAMS[name].show(value) == text


@pytest.mark.parametrize(
    ("text", "delay_ns"),
    [("1s", NS_PER_S), ("3600s", MAX_DELAY_NS), ("0ms", 0), ("1.000001ms", NS_PER_MS + 1)],
)
def test_durations(text: str, delay_ns: int) -> None:
    assert PARAMS["delay"].read(text) == delay_ns


@pytest.mark.parametrize(
    "text", ["", "1", "1 s", "-1s", "1.s", ".5s", "1e3ms", "3600.1s", "1us", "1s\n", "١s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        PARAMS["delay"].read(text)


@pytest.mark.parametrize("text", ["", "15", "0%", "-5%", "1.5%", "10001%", "15 %", "٣%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError):
        PARAMS["share"].read(text)


@pytest.mark.parametrize("text", ["", "-1", "1.0", " 1", "1_0", str(MAX_INDEX + 1), "٣"])
def test_what_is_no_index(text: str) -> None:
    for name in ("rank", "layer", "chunk"):
        with pytest.raises(ValueError):
            PARAMS[name].read(text)
