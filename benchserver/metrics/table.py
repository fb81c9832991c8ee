"""Which metrics a run has, and how each is read from what is known of it: data.

Every label takes few values, of closed sets: operations, checks and resources have names in our
code, and nothing that a server or a request says becomes a label.  Units are those of Prometheus,
seconds and bytes, and last in a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from benchserver.check.verdict import Verdict
from benchserver.monitor.snapshot import OperationNow, Phase, ResourceNow, Snapshot, Unit
from benchserver.report.figures import seconds_left

PREFIX = "bench_server_"

Kind = Literal["counter", "gauge", "summary"]

Value = tuple[tuple[str, ...], float]
"""What the labels are, in their order, and a value."""

_NOT_A_NUMBER = math.nan
"""A quantile of nothing, as other programs have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; `name` without the prefix, and without the `_total` of a counter.

    Of a summary the last label is the quantile, or the suffix of a sum or a count.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    read: Callable[[Snapshot], Iterable[Value]]

    @property
    def shown_name(self) -> str:
        """Return the name that a user asks Prometheus for."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


SUM, COUNT = "_sum", "_count"
"""What stands in place of a quantile for the sum and the count of a summary."""


def _one(value: float | None) -> list[Value]:
    return [] if value is None else [((), value)]


def _quantiles(now: Snapshot) -> Iterator[Value]:
    for one in now.operations:
        for quantile, ms in (("0.5", one.p50_ms), ("0.99", one.p99_ms), ("0.999", one.p999_ms)):
            yield (one.name, quantile), _NOT_A_NUMBER if ms is None else ms / 1000
        yield (one.name, SUM), one.total_ms / 1000
        yield (one.name, COUNT), one.count


def _of_operations(read: Callable[[OperationNow], float]) -> Callable[[Snapshot], list[Value]]:
    return lambda now: [((one.name,), read(one)) for one in now.operations]


def _of_resources(
    unit: Unit, read: Callable[[ResourceNow], float | None]
) -> Callable[[Snapshot], list[Value]]:
    """Return what reads a figure of the resources that are counted so, where there is one."""

    def values(now: Snapshot) -> list[Value]:
        read_of = [(one, read(one)) for one in now.resources if one.unit == unit]
        return [((one.name, one.side), value) for one, value in read_of if value is not None]

    return values


def _growth_of(unit: Unit) -> Callable[[Snapshot], list[Value]]:
    """Return what reads the slopes of the resources that are counted so, a second."""

    def values(now: Snapshot) -> Iterator[Value]:
        for one in now.resources:
            if one.unit != unit:
                continue
            slopes = {
                "slope": one.slope_per_hour,
                "low": one.low_per_hour,
                "high": one.high_per_hour,
                "bound": one.bound_per_hour,
            }
            for name, slope in slopes.items():
                if slope is not None:
                    yield (one.name, one.side, name), slope / 3600

    return lambda now: list(values(now))


def _grows(now: Snapshot) -> list[Value]:
    return [
        ((one.name, one.side), float(one.verdict == "grows"))
        for one in now.resources
        if one.verdict in ("flat", "grows")
    ]


def _units(now: Snapshot) -> list[Value]:
    return [
        (("proven",), now.proven),
        (("failed",), now.failed),
        (("unproven",), now.unproven),
    ]


_RESOURCE = ("resource", "side")
_SLOPE = (*_RESOURCE, "figure")
_SLOPE_HELP = "a second: the slope, the ends of its confidence interval, and its bound"

METRICS: tuple[Metric, ...] = (
    Metric(
        name="elapsed_seconds",
        kind="gauge",
        help="Time since the run began",
        read=lambda now: _one(now.at_s),
    ),
    Metric(
        name="remaining_seconds",
        kind="gauge",
        help="About how long the run goes on; absent if nobody knows",
        read=lambda now: _one(seconds_left(now)),
    ),
    Metric(
        name="phase",
        kind="gauge",
        help="1 for the phase that the run is in, 0 for the others",
        labels=("phase",),
        read=lambda now: [((one,), float(one == now.phase)) for one in get_args(Phase)],
    ),
    Metric(
        name="verdict",
        kind="gauge",
        help="1 for the verdict so far, 0 for the others; the last word is the exit code",
        labels=("verdict",),
        read=lambda now: [((one.name.lower(),), float(one == now.verdict)) for one in Verdict],
    ),
    Metric(
        name="units",
        kind="counter",
        help="Units of work that were concluded (sequences, requests, round trips), by result",
        labels=("result",),
        read=_units,
    ),
    Metric(
        name="calls",
        kind="counter",
        help="Calls that were sent to the server",
        read=lambda now: _one(now.calls),
    ),
    Metric(
        name="check_failures",
        kind="counter",
        help="Findings against the server, by check; a check without one is absent",
        labels=("check",),
        read=lambda now: [((name,), count) for name, count in now.failed_checks.items()],
    ),
    Metric(
        name="operation_latency_seconds",
        kind="summary",
        help="Latencies: quantiles of the last minute, sum and count of the run, by operation",
        labels=("operation", "quantile"),
        read=_quantiles,
    ),
    Metric(
        name="operation_errors",
        kind="counter",
        help="Operations that did not end well, by operation",
        labels=("operation",),
        read=_of_operations(lambda one: one.errors),
    ),
    Metric(
        name="transfer_bytes_per_second",
        kind="gauge",
        help="Bytes of KV over the time that their transfers took, of one worker, by operation",
        labels=("operation",),
        read=lambda now: [((name,), rate * 1e9) for name, rate in now.gb_per_s.items()],
    ),
    Metric(
        name="lookup_asked_chunks",
        kind="counter",
        help="Chunks that LOOKUPs asked for; absent where a run does not count them",
        read=lambda now: _one(None if now.hits is None else now.hits.asked_chunks),
    ),
    Metric(
        name="lookup_hit_chunks",
        kind="counter",
        help="Chunks that LOOKUPs found; absent where a run does not count them",
        read=lambda now: _one(None if now.hits is None else now.hits.hit_chunks),
    ),
    Metric(
        name="resource_bytes",
        kind="gauge",
        help="Memory in use, ours and the server's; absent if it was not seen",
        labels=_RESOURCE,
        read=_of_resources("bytes", lambda one: one.value),
    ),
    Metric(
        name="resource_items",
        kind="gauge",
        help="Descriptors, threads, locks and the like in use; absent if they were not seen",
        labels=_RESOURCE,
        read=_of_resources("count", lambda one: one.value),
    ),
    Metric(
        name="resource_growth_bytes_per_second",
        kind="gauge",
        help=f"How much memory is added {_SLOPE_HELP}",
        labels=_SLOPE,
        read=_growth_of("bytes"),
    ),
    Metric(
        name="resource_growth_items_per_second",
        kind="gauge",
        help=f"How many descriptors, threads, locks and the like are added {_SLOPE_HELP}",
        labels=_SLOPE,
        read=_growth_of("count"),
    ),
    Metric(
        name="resource_grows",
        kind="gauge",
        help="1 if a resource grows by more than its bound, 0 if it does not; absent before that "
        "can be told",
        labels=_RESOURCE,
        read=_grows,
    ),
    Metric(
        name="reconnects",
        kind="counter",
        help="How often the run connected again",
        read=lambda now: _one(now.reconnects),
    ),
    Metric(
        name="stalled_seconds",
        kind="gauge",
        help="For how long nothing was heard of the server",
        read=lambda now: _one(now.stalled_s),
    ),
)
"""In the order of a document."""
