"""Figures of a report: names, what is left out, and what the document says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchserver.compare.figures import (
    HIGHER,
    LOWER,
    NEEDED_CALLS,
    SERIES,
    SINGLE,
    figure_called,
    figures_of,
    known_names,
    near,
    slug,
)
from benchserver.scenarios.baseline.series import SERIES as OF_BASELINE
from benchserver.scenarios.load.series import SERIES as OF_LOAD
from benchserver.scenarios.ping.series import SERIES as OF_PING
from tests.benchserver.compare.reports import report, with_values
from tests.rules.documents import rows_under

DOCUMENT = Path(__file__).parents[3] / "docs/compare.md"


def test_the_series_are_those_of_all_commands() -> None:
    ours = {slug(series.name) for series in (*OF_BASELINE, *OF_LOAD, *OF_PING)}
    assert set(SERIES) == ours


def test_the_document_lists_them_all() -> None:
    rows = rows_under(DOCUMENT.read_text(encoding="utf-8"), "figure")
    named = {name.strip() for cell in rows for name in cell.split(",")}
    statistics = {f"SERIES.{statistic}" for statistic in NEEDED_CALLS}
    others = {"store.gb_per_s", "retrieve.gb_per_s", "RESOURCE.growth"}
    assert named == statistics | others | set(SINGLE)
    series = rows_under(DOCUMENT.read_text(encoding="utf-8"), "series")
    assert {name.strip() for cell in series for name in cell.split(",")} == set(SERIES)
    assert {"retrieve.p99", "hit_ratio", "store.gb_per_s"} <= set(known_names())


def test_a_load() -> None:
    made = report(retrieve_ms=12.5)
    made["load"] = {
        "rate_achieved_per_s": 20.0,
        "goodput_per_s": None,
        "duration_s": 2.0,
        "bytes": {"stored": 3 * 10**9, "retrieved": 10**9},
        "hits": {"measured": {"ratio": 0.5}},
        "missing": {"dropped_share": 0.0},
    }
    growth = {"name": "server memory", "slope_per_hour": -5.5}
    made["growth"] = {"resources": [growth, {"name": "x", "slope_per_hour": None}]}
    found = figures_of(made)
    values = found.values
    assert found.left_out["x.growth"] == "the run was too short to tell its slope"
    assert values["retrieve.p99"] == 12.5
    assert values["retrieve.gb_per_s"] == 3.0
    assert values["requests_per_s"] == 20.0
    assert values["gb_per_s"] == 2.0
    assert (values["hit_ratio"], values["dropped_share"]) == (0.5, 0.0)
    assert values["server_memory.growth"] == -5.5
    assert values["server_memory.peak"] == 200 << 20
    assert values["bytes.stored"] == 3 * 10**9
    assert {"goodput_per_s", "x.growth"}.isdisjoint(values)


def test_percentiles_need_calls_beyond_them() -> None:
    few = figures_of(report(count=60))
    assert {"retrieve.p50", "retrieve.p90", "retrieve.mean"} <= set(few.values)
    assert few.left_out["retrieve.p99"] == "60 calls a run, and it needs 100"
    assert "retrieve.p999" in few.left_out


def test_what_was_given_up_is_left_out_by_name() -> None:
    made = report()
    made["latency"]["RETRIEVE"]["censored"] = 1
    found = figures_of(made)
    assert not [name for name in found.values if name.startswith("retrieve.p")]
    assert "given up" in found.left_out["retrieve.p50"]


def test_a_figure_of_0_has_no_ratio() -> None:
    found = figures_of(report(retrieve_ms=0.0))
    assert "no ratio" in found.left_out["retrieve.p50"]
    assert "retrieve.p50" not in found.values


@pytest.mark.parametrize(
    "changes",
    [
        {"latency": None},
        {"latency": [1]},
        {"latency": {"RETRIEVE": 5}},
        {"throughput_gb_per_s": 1},
        {"load": {"duration_s": 1}},
    ],
)
def test_what_is_no_report(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        figures_of(with_values(report(), changes))


def test_numbers_that_are_none() -> None:
    changes = {"STORE": float("nan"), "RETRIEVE": 10**400, "X": True}
    found = figures_of(with_values(report(), {"throughput_gb_per_s": changes}))
    assert not [name for name in found.values if name.endswith("gb_per_s")]


def test_which_way_is_better() -> None:
    assert figure_called("retrieve.p99").better == LOWER
    assert figure_called("store.gb_per_s").better == HIGHER
    assert not figure_called("server_memory.growth").by_ratio
    assert figure_called("hit_ratio").better == HIGHER


def test_near_names() -> None:
    assert "retrieve.p99" in near("retreive.p99", known_names())
