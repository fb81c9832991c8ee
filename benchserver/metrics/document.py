"""The metrics of a run as Prometheus reads them: its text format 0.0.4.

prometheus_client writes the text: it depends on nothing, and escapes what must be escaped.  Nothing
is counted here.  Each document is made of one snapshot, so that its figures agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from benchserver.metrics.table import COUNT, METRICS, PREFIX, SUM, Metric
from benchserver.monitor.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RunCollector(Collector):
    """Reads a run whenever it is asked."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """Yield every metric that has a value now."""
        now = self._snapshot()
        for metric in METRICS:
            family = family_of(metric, now)
            if family.samples:
                yield family


class RunDocument:
    """Makes the document of one run."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        # One of our own: the library's has the metrics of everything in this process.
        self._registry = CollectorRegistry()
        self._registry.register(RunCollector(snapshot))

    def text(self) -> bytes:
        """Return the document of now; its type is CONTENT_TYPE."""
        return generate_latest(self._registry)


def family_of(metric: Metric, now: Snapshot) -> Family:
    """Return a metric with its values of now."""
    name = f"{PREFIX}{metric.name}"
    family = Family(name, metric.help, metric.kind)
    for labels, value in metric.read(now):
        suffix = "_total" if metric.kind == "counter" else ""
        names = metric.labels
        if metric.kind == "summary" and labels[-1] in (SUM, COUNT):
            suffix, names, labels = labels[-1], names[:-1], labels[:-1]
        family.add_sample(f"{name}{suffix}", dict(zip(names, labels, strict=True)), float(value))
    return family
