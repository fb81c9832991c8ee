"""`GET /metrics`: what the server counts, in Prometheus' text format 0.0.4.

Nothing is counted here: each scrape reads the counters where they are kept.  All names begin with
`bench_embedded_`, so that no dashboard takes this server for LMCache.  The text is written by
prometheus_client: it depends on nothing, loads in some 10 ms, and escapes what must be escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from benchserver.clock import NS_PER_S
from benchserver.refserver.core import Core
from benchserver.refserver.meter import BOUNDS_NS, Meter
from benchserver.refserver.tiers.backing import Backing
from benchserver.refserver.tiers.config import UNLIMITED

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "bench_embedded_"


@dataclass(frozen=True, slots=True, eq=False)
class ServerCollector(Collector):
    """Reads one server's counters whenever it is asked."""

    core: Core
    meter: Meter

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its value of now."""
        yield from _requests(self.meter)
        yield from _cache(self.core)
        yield from _clients(self.core)
        if self.core.backing is not None:
            yield from _tiers(self.core.backing)


class Exposition:
    """The document of one server, with the usual numbers of its process (Linux)."""

    def __init__(self, core: Core, meter: Meter) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(ServerCollector(core, meter))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the document; its type is CONTENT_TYPE."""
        return generate_latest(self._registry)


def _requests(meter: Meter) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        f"{_PREFIX}requests",
        "ZMQ requests by operation and what became of them",
        labels=["operation", "outcome"],
    )
    for (operation, fate), number in sorted(meter.fates.items(), key=lambda item: item[0][0]):
        requests.add_metric([operation, fate.value], number)
    yield requests
    seconds = HistogramMetricFamily(
        f"{_PREFIX}handler_seconds", "Time that handlers took, by operation", labels=["operation"]
    )
    bounds = [*(f"{bound / NS_PER_S:g}" for bound in BOUNDS_NS), "+Inf"]
    for op, held in meter.latencies.items():
        buckets = list(zip(bounds, accumulate(held.counts), strict=True))
        seconds.add_metric([op.value], buckets, held.sum_ns / NS_PER_S)
    yield seconds


def _cache(core: Core) -> Iterator[Metric]:
    totals, lookups = core.cache.totals(), core.lookups
    yield _counter(
        "stored_objects", "Chunk objects that became visible in L1", totals.stored_objects
    )
    yield _counter("stored_bytes", "Their bytes", totals.stored_bytes)
    yield _counter("read_objects", "Chunk objects that granted reads had", totals.read_objects)
    yield _counter("read_bytes", "Their bytes", totals.read_bytes)
    yield _counter(
        "evicted_objects", "Chunk objects dropped because room was needed", totals.evicted_objects
    )
    yield _counter("evicted_bytes", "Their bytes", totals.evicted_bytes)
    yield _counter("cleared_objects", "Chunk objects dropped by a clear", totals.cleared_objects)
    yield _counter("deleted_objects", "Chunk objects dropped by name", totals.deleted_objects)
    yield _counter(
        "refused_reservations", "Stores for which L1 had no room", totals.refused_reservations
    )
    yield _counter("refused_objects", "Chunk objects of those", totals.refused_objects)
    yield _counter(
        "expired_reservations",
        "Chunk objects whose store was never finished",
        totals.expired_reservations,
    )
    yield _counter("lookup_chunks", "Chunks that lookups asked for", lookups.requested_chunks)
    yield _counter("lookup_hit_chunks", "Chunks that lookups found", lookups.hit_chunks)
    size = core.config.chunk_size
    yield _counter("lookup_tokens", "Their tokens", size * lookups.requested_chunks)
    yield _counter("lookup_hit_tokens", "Tokens that were found", size * lookups.hit_chunks)
    counts = core.cache.counts(core.clock.now_ns())
    yield _gauge("objects", "Chunk objects in L1, reserved ones included", counts.objects)
    yield _gauge("l1_used_bytes", "Memory of L1 in use", counts.used_bytes)
    yield _gauge("l1_capacity_bytes", "Memory of L1", counts.capacity_bytes)
    yield _gauge("read_locked_objects", "Objects with read locks", counts.read_locked)
    yield _gauge("write_locked_objects", "Objects that are being written", counts.write_locked)


def _clients(core: Core) -> Iterator[Metric]:
    yield _gauge("sessions", "Open sessions", core.sessions.count)
    yield _gauge(
        "unclaimed_lookups", "Lookup results nobody has asked for", core.sessions.result_count
    )
    instances = GaugeMetricFamily(
        f"{_PREFIX}registered_instances", "Registered clients by transfer mode", labels=["mode"]
    )
    instances.add_metric(["lmcache_driven"], len(core.registry.mapped))
    instances.add_metric(["engine_driven"], len(core.registry.engine))
    yield instances


_TIER_GAUGES = {"objects", "used_bytes", "capacity_bytes", "queued"}


def _tiers(backing: Backing) -> Iterator[Metric]:
    totals = backing.totals()
    for item in fields(totals):
        number = getattr(totals, item.name)
        yield _counter(f"l2_{item.name}", "All tiers together", number)
    stats = [tier.stats for tier in backing.tiers]
    for item in fields(stats[0]) if stats else ():
        family: type[GaugeMetricFamily] | type[CounterMetricFamily] = (
            GaugeMetricFamily if item.name in _TIER_GAUGES else CounterMetricFamily
        )
        metric = family(
            f"{_PREFIX}l2_tier_{item.name}", "By tier, the nearest is 0", labels=["tier", "type"]
        )
        for index, (tier, held) in enumerate(zip(backing.tiers, stats, strict=True)):
            number = getattr(held, item.name)
            if number != UNLIMITED:
                metric.add_metric([str(index), tier.name], number)
        yield metric


def _counter(name: str, meaning: str, value: int) -> Metric:
    return CounterMetricFamily(_PREFIX + name, meaning, value=value)


def _gauge(name: str, meaning: str, value: int) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, meaning, value=value)
