"""What a load's report says, and what is no report of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchserver.sweep.figures import figures_of
from tests.benchserver.sweep.reports import report


def test_all_figures() -> None:
    found = figures_of(report())
    assert found.proven
    assert found.valid
    expected = {
        "requests_per_s": 40.0,
        "gb_per_s": 2.0,
        "hit_ratio": 0.5,
        "ideal_hit_ratio": 0.75,
        "share_verified": 1.0,
        "lookup.p50": 5.0,
        "retrieve.p99": 12.0,
        "store.p90": 8.0,
        "response.p999": 20.0,
        "store.max": 25.0,
    }
    assert expected.items() <= found.values.items()
    assert not {"lru_hit_ratio", "service.p50", "dropped_share"} & set(found.values)


def test_what_is_not_good() -> None:
    found = figures_of(report(verdict="unknown", valid=False, limit="harness"))
    assert (found.proven, found.valid, found.limit) == (False, False, "harness")
    assert found.reasons == ("late",)


def test_an_exit_code_is_part_of_the_proof() -> None:
    assert not figures_of({**report(), "exit_code": 1}).proven


def test_what_is_not_a_number_is_no_figure() -> None:
    document = report()
    document["load"]["rate_achieved_per_s"] = None
    document["load"]["share_verified"] = float("nan")
    assert not {"requests_per_s", "share_verified"} & set(figures_of(document).values)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda d: d.clear(), "no load"),
        (lambda d: d["load"].pop("measurement"), "no measurement"),
        (lambda d: d["load"].pop("hits"), "no hits"),
        (lambda d: d.pop("verdict"), "no verdict"),
        (lambda d: d.pop("latency"), "no latency"),
        (lambda d: d.update(load=[]), "list indices"),
    ],
)
def test_no_report_of_a_load(spoil: Callable[[dict[str, Any]], object], expected: str) -> None:
    document = report()
    spoil(document)
    with pytest.raises(ValueError, match=f"not the report of a load: .*{expected}"):
        figures_of(document)
