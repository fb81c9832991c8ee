"""What a user may set about a fault, and how its text is read: data and pure functions."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.clock import NS_PER_MS, NS_PER_S
from protocol.ops import Op

ALL_OPS = frozenset(Op)
ANY = "ANY"
LAST = -1
"""A layer or chunk: the last one."""

EVERY_RANK = -1
MAX_INDEX = 10**6
MAX_DELAY_NS = 3600 * NS_PER_S
"""Longer than anybody waits for a call."""

MAX_SHARE_PERCENT = 10_000


class Step(enum.Enum):
    """Where in a call a crash comes."""

    ARRIVED = "arrived"
    DONE = "done"
    REPLIED = "replied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values of all parameters; a fault looks at those that it declares."""

    ops: frozenset[Op] = frozenset()
    delay_ns: int = 0
    share_percent: int = 0
    rank: int = EVERY_RANK
    layer: int = LAST
    chunk: int = LAST
    step: Step = Step.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One parameter: its name in a switch, its field, its reader, and what it reads, in words."""

    name: str
    field: str
    read: Callable[[str], Any]
    expected: str
    show: Callable[[Any], str]


def _read_ops(text: str) -> frozenset[Op]:
    return ALL_OPS if text == ANY else frozenset((Op[text],))


def _show_ops(ops: frozenset[Op]) -> str:
    return ANY if ops == ALL_OPS else "/".join(sorted(op.name for op in ops))


_DURATION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?(ms|s)", re.ASCII)


def _read_duration(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    whole, fraction, unit = match.groups()
    unit_ns = NS_PER_MS if unit == "ms" else NS_PER_S
    digits = fraction or "0"
    nanoseconds = int(whole) * unit_ns + int(int(digits) * unit_ns / 10 ** len(digits))
    if nanoseconds > MAX_DELAY_NS:
        raise ValueError(text)
    return nanoseconds


def _read_share(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}%", text, re.ASCII):
        raise ValueError(text)
    percent = int(text[:-1])
    if not 1 <= percent <= MAX_SHARE_PERCENT:
        raise ValueError(text)
    return percent


def _read_index(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or int(text) > MAX_INDEX:
        raise ValueError(text)
    return int(text)


def _show_index(value: int) -> str:
    return "last" if value == LAST else str(value)


PARAMS: Mapping[str, Param] = {
    param.name: param
    for param in (
        Param(
            name="op",
            field="ops",
            read=_read_ops,
            expected=f"an operation such as STORE or RETRIEVE, or {ANY}",
            show=_show_ops,
        ),
        Param(
            name="delay",
            field="delay_ns",
            read=_read_duration,
            expected="a duration such as 300ms or 1.5s, at most an hour",
            show=lambda ns: f"{ns / NS_PER_MS:g}ms",
        ),
        Param(
            name="share",
            field="share_percent",
            read=_read_share,
            expected=f"a percentage such as 15%, at most {MAX_SHARE_PERCENT}%",
            show=lambda percent: f"{percent}%",
        ),
        Param(
            name="rank",
            field="rank",
            read=_read_index,
            expected="a KV rank",
            show=lambda rank: "every" if rank == EVERY_RANK else str(rank),
        ),
        Param(
            name="layer",
            field="layer",
            read=_read_index,
            expected="the number of a layer, from 0",
            show=_show_index,
        ),
        Param(
            name="chunk",
            field="chunk",
            read=_read_index,
            expected="the number of a chunk in the call, from 0",
            show=_show_index,
        ),
        Param(
            name="at",
            field="step",
            read=Step,
            expected="arrived, done or replied",
            show=lambda step: str(step.value),
        ),
    )
}
