"""The figures of a report that are compared, by short names: pure.

`retrieve.p99` is the series RETRIEVE of the latency table; a blank in the name of a series becomes
`_`: `lookup_warm.p50`.  A figure that a report cannot tell is left out, with the reason.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LOWER, HIGHER, NEITHER = "lower", "higher", "neither"
"""Which way is better."""

SERIES = (
    *("lookup", "lookup_cold", "lookup_warm"),
    *("retrieve", "retrieve_reply", "retrieve_part", "store", "store_reply"),
    *("free_lookup_locks", "end_session", "visibility_lag", "sequence_wall"),
    *("service", "response", "lag", "queued", "ping", "ping_under_load", "get_chunk_size"),
)
"""The series of all commands."""

NEEDED_CALLS = {"p50": 2, "p90": 10, "p99": 100, "p999": 1000, "mean": 1}
"""The statistics of a series, and how many calls a run needs to have one: at least one beyond."""

GB_PER_S, GROWTH = "gb_per_s", "growth"
RATES = ("store", "retrieve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: what it is in, which way is better, and how it is compared.

    `by_ratio`: by B / A; otherwise by B - A, as figures are that may be 0 or below.
    """

    name: str
    unit: str
    better: str
    by_ratio: bool = True


SINGLE = {
    figure.name: figure
    for figure in (
        Figure(name="requests_per_s", unit="/s", better=HIGHER),
        Figure(name="goodput_per_s", unit="/s", better=HIGHER, by_ratio=False),
        Figure(name="gb_per_s", unit="GB/s", better=HIGHER),
        Figure(name="hit_ratio", unit="", better=HIGHER, by_ratio=False),
        Figure(name="dropped_share", unit="", better=LOWER, by_ratio=False),
        Figure(name="bytes.stored", unit="bytes", better=NEITHER),
        Figure(name="bytes.retrieved", unit="bytes", better=NEITHER),
        Figure(name="server_memory.peak", unit="bytes", better=LOWER),
        Figure(name="own_memory.peak", unit="bytes", better=LOWER),
    )
}
"""Those that are no statistic of a series."""


def figure_called(name: str) -> Figure:
    """Return the figure of a name that a report has."""
    if name in SINGLE:
        return SINGLE[name]
    if _is_growth(name):
        return Figure(name=name, unit="/h", better=LOWER, by_ratio=False)
    if name.endswith(f".{GB_PER_S}"):
        return Figure(name=name, unit="GB/s", better=HIGHER)
    return Figure(name=name, unit="ms", better=LOWER)


def _is_growth(name: str) -> bool:
    return name.endswith(f".{GROWTH}")


def known_names() -> list[str]:
    """Return all names that reports of this version have, but for those of resources."""
    latencies = (f"{series}.{statistic}" for series in SERIES for statistic in NEEDED_CALLS)
    return [*latencies, *(f"{series}.{GB_PER_S}" for series in RATES), *SINGLE]


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that somebody may have meant."""
    return difflib.get_close_matches(name, list(names), n=4, cutoff=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run, and why others are left out."""

    values: Mapping[str, float]
    left_out: Mapping[str, str]


def figures_of(report: Mapping[str, Any]) -> Figures:
    """Return the figures of a report; ValueError for one that has no latencies."""
    values, left_out = dict[str, float](), dict[str, str]()
    for series, latency in _mapping(report, "latency").items():
        for statistic, needed in NEEDED_CALLS.items():
            name = f"{slug(series)}.{statistic}"
            if reason := _why_not(latency, needed):
                left_out[name] = reason
            elif (value := _number(latency.get(f"{statistic}_ms"))) is not None:
                values[name] = value
    for series, rate in _mapping(report, "throughput_gb_per_s").items():
        if (value := _number(rate)) is not None:
            values[f"{slug(series)}.{GB_PER_S}"] = value
    singles = {**_load_figures(report), **_memory_figures(report), **_growth_figures(report)}
    values |= {name: value for name, value in singles.items() if value is not None}
    grown = [name for name, value in singles.items() if value is None and _is_growth(name)]
    left_out |= dict.fromkeys(grown, "the run was too short to tell its slope")
    for name in [name for name in values if figure_called(name).by_ratio and values[name] <= 0]:
        left_out[name] = f"it is {values.pop(name):g}, and has no ratio"
    return Figures(values=values, left_out=left_out)


def slug(name: str) -> str:
    """Return a name as figures have it."""
    return "_".join(name.lower().split())


def _why_not(latency: Any, needed: int) -> str:
    """Return why a statistic of a series tells nothing, or ""."""
    if not isinstance(latency, Mapping):
        raise ValueError("its latency table is not ours")
    count = _number(latency.get("count")) or 0
    if latency.get("censored") or latency.get("clamped"):
        return "calls were given up before they ended: its latencies are at least what is said"
    return f"{count:g} calls a run, and it needs {needed}" if count < needed else ""


def _load_figures(report: Mapping[str, Any]) -> dict[str, float | None]:
    load = report.get("load")
    if not isinstance(load, Mapping):
        dropped = report.get("dropped")
        share = dropped.get("share") if isinstance(dropped, Mapping) else None
        return {"dropped_share": _number(share)}
    moved = _mapping(load, "bytes")
    stored, retrieved = _number(moved.get("stored")), _number(moved.get("retrieved"))
    duration_s = _number(load.get("duration_s"))
    total = None if stored is None or retrieved is None else stored + retrieved
    return {
        "requests_per_s": _number(load.get("rate_achieved_per_s")),
        "goodput_per_s": _number(load.get("goodput_per_s")),
        "gb_per_s": total / duration_s / 1e9 if total is not None and duration_s else None,
        "hit_ratio": _number(_mapping(_mapping(load, "hits"), "measured").get("ratio")),
        "dropped_share": _number(_mapping(load, "missing").get("dropped_share")),
        "bytes.stored": stored or None,
        "bytes.retrieved": retrieved or None,
    }


def _memory_figures(report: Mapping[str, Any]) -> dict[str, float | None]:
    run = report.get("run")
    memory = run.get("memory") if isinstance(run, Mapping) else None
    if not isinstance(memory, Mapping):
        return {}
    server = memory.get("server")
    peak = server.get("peak_bytes") if isinstance(server, Mapping) else None
    own = _number(memory.get("own_peak_bytes"))
    return {"own_memory.peak": own, "server_memory.peak": _number(peak)}


def _growth_figures(report: Mapping[str, Any]) -> dict[str, float | None]:
    growth = report.get("growth")
    resources = growth.get("resources") if isinstance(growth, Mapping) else None
    return {
        f"{slug(str(resource.get('name')))}.{GROWTH}": _number(resource.get("slope_per_hour"))
        for resource in (resources if isinstance(resources, list) else ())
        if isinstance(resource, Mapping)
    }


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"no {name}")
    return found


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else, which is no figure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
