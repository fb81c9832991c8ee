"""The text that Prometheus reads, read by the library's own parser."""

from __future__ import annotations

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from benchserver.metrics.document import RunDocument
from benchserver.metrics.table import METRICS
from benchserver.monitor.snapshot import Snapshot
from tests.benchserver.report.snapshots import bad_snapshot, empty_snapshot, operation, snapshot


def parsed(now: Snapshot) -> dict[str, prometheus_client.Metric]:
    text = RunDocument(lambda: now).text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_every_metric_is_typed_and_documented() -> None:
    helps = {f"bench_server_{metric.name}": metric for metric in METRICS}
    seen = set[str]()
    for now in (snapshot(), bad_snapshot(), empty_snapshot()):
        for name, family in parsed(now).items():
            assert (family.type, family.documentation) == (helps[name].kind, helps[name].help)
            for sample in family.samples:
                assert set(sample.labels) <= set(helps[name].labels)
            seen.add(name)
    # Slopes are known of none of these runs.
    assert {name for name in helps if "growth" not in name} == seen


def test_counters_and_summaries_have_their_suffixes() -> None:
    families = parsed(snapshot())
    assert {sample.name for sample in families["bench_server_units"].samples} == {
        "bench_server_units_total"
    }
    latency = families["bench_server_operation_latency_seconds"].samples
    assert [(s.name.removeprefix("bench_server_operation_latency_seconds"), s.labels, s.value)
            for s in latency[:5]] == [
        ("", {"operation": "STORE", "quantile": "0.5"}, 0.001),
        ("", {"operation": "STORE", "quantile": "0.99"}, 0.0025),
        ("", {"operation": "STORE", "quantile": "0.999"}, 0.003),
        ("_sum", {"operation": "STORE"}, 0.015),
        ("_count", {"operation": "STORE"}, 10.0),
    ]  # fmt: skip


def test_one_snapshot_a_document() -> None:
    taken: list[Snapshot] = []

    def take() -> Snapshot:
        taken.append(snapshot())
        return taken[-1]

    document = RunDocument(take)
    assert taken == []
    document.text()
    document.text()
    assert len(taken) == 2


def test_what_must_be_escaped_is() -> None:
    families = parsed(snapshot(operations=(operation('A "b"\\\nc'),)))
    (errors,) = families["bench_server_operation_errors"].samples
    assert errors.labels == {"operation": 'A "b"\\\nc'}
