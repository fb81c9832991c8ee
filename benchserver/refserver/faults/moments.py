"""When a fault fires: a pure function of the number of matching calls so far."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

MAX_TURN = 10**9
"""No server lives to see more matching calls than this."""

MAX_SEED = 2**63 - 1
_NO_END = 2**63
_DRAW_BYTES = 8
_DRAWS = Decimal(256**_DRAW_BYTES)


class Moment(Protocol):
    """Decides for each matching call, counted from 1, whether a fault fires."""

    def fires(self, turn: int) -> bool:
        """Tell whether the fault fires at this call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The matching calls from `first` to `last`, both included."""

    first: int = 1
    last: int = _NO_END

    def fires(self, turn: int) -> bool:
        """Tell whether the fault fires at this call."""
        return self.first <= turn <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Each matching call with a probability, drawn from the seed and the call's number."""

    probability: Decimal
    seed: int = 0

    def fires(self, turn: int) -> bool:
        """Tell whether the fault fires at this call."""
        text = f"bench-server fault v1\0{self.seed}\0{turn}".encode()
        draw = int.from_bytes(hashlib.blake2b(text, digest_size=_DRAW_BYTES).digest(), "big")
        return Decimal(draw) < self.probability * _DRAWS


EVERY_CALL = Turns()

FORMS = "@N, @N+, @N..M or @p=P[,seed=S]"


def _nth(number: str) -> Turns:
    return Turns(first=_turn(number), last=_turn(number))


def _onwards(number: str) -> Turns:
    return Turns(first=_turn(number))


def _between(first: str, last: str) -> Turns:
    if _turn(last) < _turn(first):
        raise ValueError(f"{first}..{last} ends before it begins")
    return Turns(first=_turn(first), last=_turn(last))


def _chance(probability: str, seed: str | None) -> Chance:
    value, root = Decimal(probability), int(seed or 0)
    if not 0 < value <= 1:
        raise ValueError(f"probability {probability}, expected more than 0, at most 1")
    if root > MAX_SEED:
        raise ValueError(f"seed {seed}, expected at most {MAX_SEED}")
    return Chance(probability=value, seed=root)


def _turn(text: str) -> int:
    if not 1 <= int(text) <= MAX_TURN:
        raise ValueError(f"call {text}, expected 1 to {MAX_TURN}")
    return int(text)


_GRAMMAR: Mapping[str, Callable[..., Moment]] = {
    r"([0-9]{1,12})": _nth,
    r"([0-9]{1,12})\+": _onwards,
    r"([0-9]{1,12})\.\.([0-9]{1,12})": _between,
    r"p=([0-9]{1,3}(?:\.[0-9]{1,12})?)(?:,seed=([0-9]{1,19}))?": _chance,
}


def parse_moment(text: str) -> Moment:
    """Read what stands behind the @; ValueError says what is wrong with it."""
    for pattern, make in _GRAMMAR.items():
        match = re.fullmatch(pattern, text, re.ASCII)
        if match:
            return make(*match.groups())
    raise ValueError(f"{text!a} is not a moment, expected {FORMS}")
