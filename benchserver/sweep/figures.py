"""What the JSON report of a load says, by short names: pure.

A report that lacks what every load must say is not taken for a good one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROVEN = "valid"
"""The verdict of a report that proves all that was asked for."""

RETRIEVE, STORE, LOOKUP = "RETRIEVE", "STORE", "LOOKUP"

REQUESTS_PER_S, GB_PER_S = "requests_per_s", "gb_per_s"
HIT_RATIO, IDEAL_RATIO, LRU_RATIO = "hit_ratio", "ideal_hit_ratio", "lru_hit_ratio"
SHARE_VERIFIED, DROPPED_SHARE = "share_verified", "dropped_share"

SERIES = {
    "lookup": LOOKUP,
    "retrieve": RETRIEVE,
    "store": STORE,
    "service": "service",
    "response": "response",
    "lag": "lag",
}
"""Short names of the series of the latency table."""

STATISTICS = ("p50", "p90", "p99", "p999", "max", "mean")

_BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run of a load.

    `values`: every figure that there is, latencies as `lookup.p99` in milliseconds.  `limit`: which
    side was the limit of a measurement that is not `valid`.
    """

    values: Mapping[str, float]
    proven: bool
    valid: bool
    limit: str
    reasons: tuple[str, ...]


def figures_of(report: Mapping[str, Any]) -> Figures:
    """Return the figures of a report; ValueError if it is none of a load."""
    try:
        load = report["load"]
        measurement = load["measurement"]
        return Figures(
            values=_values(report, load),
            proven=report["verdict"] == PROVEN and report["exit_code"] == 0,
            valid=measurement["valid"] is True,
            limit=str(measurement["limit"]),
            reasons=tuple(map(str, measurement["reasons"])),
        )
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"not the report of a load: {missing}") from error


def _values(report: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, float]:
    hits, moved = load["hits"], load["bytes"]
    duration_s = _number(load["duration_s"])
    found = {
        REQUESTS_PER_S: _number(load["rate_achieved_per_s"]),
        HIT_RATIO: _number(hits["measured"]["ratio"]),
        IDEAL_RATIO: _number((hits.get("ideal_infinite") or {}).get("ratio")),
        LRU_RATIO: _number((hits.get("ideal_lru") or {}).get("ratio")),
        SHARE_VERIFIED: _number(load["share_verified"]),
        DROPPED_SHARE: _number(load["missing"].get("dropped_share")),
    }
    if duration_s:
        found[GB_PER_S] = (moved["stored"] + moved["retrieved"]) / duration_s / _BYTES_PER_GB
    for short, series in SERIES.items():
        latency = report["latency"].get(series, {})
        for statistic in STATISTICS:
            found[f"{short}.{statistic}"] = _number(latency.get(f"{statistic}_ms"))
    return {name: value for name, value in found.items() if value is not None}


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else, which is no figure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
