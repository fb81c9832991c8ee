"""Which values an option takes: bounds, words, texts.  Pure data, and how a value reads as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from benchserver.errors import one_line

_MAX_SHOWN = 60


def shown(value: object) -> str:
    """Return a value as it is written on a command line, with every digit that a number has."""
    if isinstance(value, Enum):
        return str(value.value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def range_problem(value: float, low: float, high: float) -> str:
    """Say that a number is not from `low` to `high`, or ""; a NaN is in no range."""
    if low <= value <= high:
        return ""
    text = one_line(shown(value), _MAX_SHOWN)
    return f"{text} is out of range, expected {shown(low)} to {shown(high)}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `low` to `high`; `what` stands for it in the help."""

    low: float
    high: float
    what: str = "SECS"


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port to listen on; 0: any free one.

    Not only a whole number: Kubernetes gives every pod variables that look like ours and hold the
    address of a service (`BENCH_SERVER_SERVE_PORT=tcp://10.0.0.1:5555`).
    """

    low: int = 0
    high: int = 65535


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Any text: `what` stands for it in the help.  `any_script`: also where the locale is ASCII."""

    what: str
    any_script: bool = False


@dataclass(frozen=True, slots=True)
class Texts:
    """Any number of texts: the option may be given several times."""

    what: str


@dataclass(frozen=True, slots=True)
class Flag:
    """An option without a value; `gives` is what its field has once it is there."""

    gives: bool = True


@dataclass(frozen=True, slots=True)
class Action:
    """An option without a value that prints something and leaves."""


Kind = Whole | Number | Port | Choice | Text | Texts | Flag | Action


def placeholder(kind: Kind) -> str:
    """Return what stands for the value in the help, or "" for an option without one."""
    match kind:
        case Whole() | Port():
            return "N"
        case Choice(words):
            return f"[{'|'.join(words)}]"
        case Number(_, _, what) | Text(what) | Texts(what):
            return what
        case Flag() | Action():
            return ""


def bounds(kind: Kind) -> tuple[float, float] | None:
    """Return the least and the greatest value, or None for what is not a number."""
    match kind:
        case Whole(low, high) | Number(low, high) | Port(low, high):
            return low, high
        case _:
            return None


@dataclass(frozen=True, slots=True)
class ByField:
    """A default that depends on another field of the configuration."""

    field: str
    values: Mapping[str, Any]
