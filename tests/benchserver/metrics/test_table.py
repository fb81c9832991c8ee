"""Which metrics there are: names, types, helps, labels, and what is read of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchserver.metrics.table import METRICS, Metric
from tests.benchserver.report.snapshots import bad_snapshot, empty_snapshot, resource, snapshot
from tests.rules.documents import rows_under

ROOT = Path(__file__).parents[3]


def of(name: str) -> Metric:
    (found,) = (metric for metric in METRICS if metric.name == name)
    return found


def test_the_document_has_them_all_and_says_the_same() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert rows_under(text, "metric", "type", "labels") == {
        metric.shown_name: (metric.kind, ", ".join(metric.labels) or "-", metric.help)
        for metric in METRICS
    }


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_and_helps(metric: Metric) -> None:
    assert re.fullmatch("[a-z][a-z_]*[a-z]", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert not metric.help.endswith(".")
    assert len(metric.help) > 20
    for unit in ("ms", "milliseconds", "hour", "gb", "mb"):
        assert unit not in metric.name.split("_")


def test_counters_count_and_what_is_unknown_is_absent() -> None:
    nothing, some = empty_snapshot(), bad_snapshot()
    for name in ("remaining_seconds", "lookup_asked_chunks", "check_failures", "resource_grows"):
        assert list(of(name).read(nothing)) == []
    assert of("units").read(some) == [(("proven",), 60), (("failed",), 3), (("unproven",), 1)]
    assert of("check_failures").read(some) == [(("content",), 3), (("store",), 1)]
    assert of("operation_errors").read(some) == [(("STORE",), 2)]
    assert of("lookup_hit_chunks").read(some) == [((), 150)]
    assert of("reconnects").read(some) == [((), 2)]
    assert of("stalled_seconds").read(some) == [((), 12.0)]
    assert of("calls").read(some) == [((), 480)]
    assert of("transfer_bytes_per_second").read(some) == [(("STORE",), 1.5e9)]
    assert of("remaining_seconds").read(snapshot()) == [((), 16.0)]


def test_one_of_several_holds() -> None:
    assert [value for _, value in of("phase").read(snapshot())] == [0, 1, 0, 0]
    assert of("verdict").read(bad_snapshot()) == [
        (("valid",), 0),
        (("unknown",), 0),
        (("invalid",), 1),
    ]


def test_latencies_in_seconds_and_quantiles_of_nothing() -> None:
    values = dict(of("operation_latency_seconds").read(snapshot()))
    assert values["STORE", "0.5"] == 0.001
    assert values["STORE", "0.99"] == 0.0025
    assert values["LOOKUP warm", "0.999"] == 0.003
    assert (values["STORE", "_sum"], values["STORE", "_count"]) == (0.015, 10)
    none = dict(of("operation_latency_seconds").read(bad_snapshot()))
    assert none["STORE", "0.99"] != none["STORE", "0.99"]  # not a number


def test_resources_and_their_growth() -> None:
    slopes = {"slope_per_hour": 7200.0, "low_per_hour": -3600.0, "bound_per_hour": 36e5}
    now = snapshot(
        resources=(
            resource("server memory", verdict="grows", **slopes),
            resource("our threads", side="ours", unit="count", value=7.0, slope_per_hour=0.0),
            resource("server locks", unit="count", value=None, verdict="not measured"),
        )
    )
    assert of("resource_bytes").read(now) == [(("server memory", "server"), float(1 << 30))]
    assert of("resource_items").read(now) == [(("our threads", "ours"), 7.0)]
    assert of("resource_growth_bytes_per_second").read(now) == [
        (("server memory", "server", "slope"), 2.0),
        (("server memory", "server", "low"), -1.0),
        (("server memory", "server", "bound"), 1000.0),
    ]
    assert of("resource_growth_items_per_second").read(now) == [
        (("our threads", "ours", "slope"), 0.0)
    ]
    assert of("resource_grows").read(now) == [
        (("server memory", "server"), 1.0),
        (("our threads", "ours"), 0.0),
    ]
