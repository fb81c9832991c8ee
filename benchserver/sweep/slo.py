"""A service level: conditions on figures of a load, and whether one keeps them.  Pure.

retrieve.p99<50ms and hit_ratio>=0.5
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchserver.errors import UsageError, one_line
from benchserver.sweep.figures import HIT_RATIO, SERIES, STATISTICS

TTFT = "ttft"
"""Another name of `response`, which is never shorter: it waits for the STORE as well."""

_ALIASES = {TTFT: "response"}
_WORDS = {"p99.9": "p999"}
_MS_OF = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
_CONDITION = re.compile(
    r"\s*([a-z_]+)(?:\.([a-z0-9.]+))?\s*(<=|<|>=|>)\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z%]*)\s*",
    re.ASCII,
)
_EXAMPLE = "such as 'retrieve.p99<50ms' or 'hit_ratio>=0.5'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`figure` is a name among those of `Figures.values`; latencies are in milliseconds."""

    figure: str
    relation: str
    bound: float
    text: str

    def kept_by(self, values: Mapping[str, float]) -> bool | None:
        """Tell whether these figures keep it; None: they do not say."""
        if self.figure not in values:
            return None
        return _RELATIONS[self.relation](values[self.figure], self.bound)


def parse_slo(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return all conditions, each of which must hold; UsageError for one that says nothing."""
    return tuple(
        _parsed(part) for text in texts for part in re.split(r"\band\b", text, flags=re.ASCII)
    )


def _parsed(text: str) -> Condition:
    place = f"--slo {one_line(text.strip(), 80)!r}"
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(f"{place}: expected a figure, a relation and a bound, {_EXAMPLE}")
    name, statistic, relation, number, unit = found.groups()
    bound = float(number)
    if name == HIT_RATIO and statistic is None:
        bound = bound / 100 if unit == "%" else bound
        if unit not in ("", "%") or bound > 1:
            raise UsageError(f"{place}: a ratio is a number from 0 to 1, or per cent with %")
        return Condition(figure=name, relation=relation, bound=bound, text=text.strip())
    series = _ALIASES.get(name, name)
    if series not in SERIES or statistic is None:
        known = ", ".join([*SERIES, TTFT])
        raise UsageError(
            f"{place}: no such figure; there is hit_ratio, and one of {known} with a statistic, "
            f"{_EXAMPLE}"
        )
    statistic = _WORDS.get(statistic, statistic)
    if statistic not in STATISTICS:
        words = ", ".join(STATISTICS)
        raise UsageError(f"{place}: no such statistic; known: {words}")
    if unit not in _MS_OF:
        raise UsageError(f"{place}: expected a unit, one of {', '.join(_MS_OF)}")
    bound *= _MS_OF[unit]
    if not bound or not math.isfinite(bound):
        raise UsageError(f"{place}: nothing takes no time")
    figure = f"{series}.{statistic}"
    return Condition(figure=figure, relation=relation, bound=bound, text=text.strip())
