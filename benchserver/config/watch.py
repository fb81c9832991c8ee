"""What a run is asked of growth: how much more a resource may take an hour, by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchserver.errors import UsageError, one_line

A_COUNT = 6.0
"""An hour, that is a thousand a week: what a process may have of descriptors, if nobody raised it.
One connection more, somewhere in an hour, is no leak."""

GROWTH_BOUNDS: Mapping[str, float] = {
    "our memory": 8e6,
    "our descriptors": A_COUNT,
    "our threads": A_COUNT,
    "server memory": 8e6,
    "server descriptors": A_COUNT,
    "server threads": A_COUNT,
    "server processes": A_COUNT,
    "server sessions": A_COUNT,
    "server read locks": A_COUNT,
    "server write locks": A_COUNT,
    "server registrations": A_COUNT,
    "server prefetches": A_COUNT,
    "shared memory names": A_COUNT,
    "shared memory": 8e6,
}
"""What may be added an hour, bytes or how many, unless a run is told otherwise."""

MEMORY = frozenset({"our memory", "server memory", "shared memory"})
"""Those that are counted in bytes."""

EVERY_S = 5.0
"""How often resources are looked at, unless a run is told otherwise."""

STALL_AFTER_S = 300.0
"""Long enough for the largest fill or proof of a busy host, short enough to be of use in a week."""

_BEGINNING_H = {"our memory": 8.0}
_BEGINNING_OTHERS_H = 1.5


def least_growth(name: str, bound: float) -> float:
    """Return how much must have been added before that is called growth.

    A server takes memory for what it has just met, and a bench keeps what it knows of the last
    hours: the bound of so many hours is theirs at the beginning.
    """
    return bound * _BEGINNING_H.get(name, _BEGINNING_OTHERS_H)


_BYTES_OF = {"": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_BOUND = re.compile(
    r"\s*([a-z ]+?)\s*=\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(kB|MB|GB|)\s*(?:/\s*h)?\s*", re.ASCII
)
_MAX_TEXT = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """`growth_bounds` as it was written: "server memory=8MB/h, our descriptors=5/h"; "": none.

    Resources are looked at every `growth_every_s`.  A run that may `reconnect` waits so long for a
    server that it has lost.
    """

    growth_bounds: str = ""
    growth_every_s: float = EVERY_S
    max_failures: int | None = None
    keep_going: bool = False
    reconnect: bool = False
    reconnect_within_s: float = 60.0
    stall_after_s: float | None = None
    """None: see `stalled_after`."""

    def stalled_after(self, timeout_s: float) -> float:
        """Return after how many seconds without anything a run is stalled.

        By default no call that may take `timeout_s` looks like that, nor a thread on a busy host.
        """
        if self.stall_after_s is not None:
            return self.stall_after_s
        return max(STALL_AFTER_S, 2 * timeout_s)

    @property
    def most_failures(self) -> int | None:
        """Return after how many failed units the run ends early; None: after none."""
        return None if self.keep_going else self.max_failures

    @property
    def bounds(self) -> Mapping[str, float]:
        """Return the bound of every resource; UsageError for what is none."""
        return {**GROWTH_BOUNDS, **parse_bounds(self.growth_bounds)}

    def check(self) -> None:
        """Raise UsageError for anything that cannot work."""
        _ = self.bounds


def parse_bounds(text: str) -> dict[str, float]:
    """Return what may be added an hour, by resource; UsageError for anything else."""
    return dict(_bound(part, text) for part in text.split(",")) if text else {}


def _bound(part: str, text: str) -> tuple[str, float]:
    found, shown = _BOUND.fullmatch(part), one_line(text, _MAX_TEXT)
    if found is None or found[1] not in GROWTH_BOUNDS:
        raise UsageError(
            f"--growth-bound {shown}: expected bounds such as 'server memory=8MB/h, our "
            f"descriptors=5/h'; a bound is about {', '.join(GROWTH_BOUNDS)}"
        )
    name, unit = found[1], found[3]
    if unit and name not in MEMORY:
        raise UsageError(f"--growth-bound {shown}: {name} are counted, they have no {unit}")
    return name, float(found[2]) * _BYTES_OF[unit]
