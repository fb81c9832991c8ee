"""What happened when, out of a report of any origin."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.page.overtime import over_time
from tests.benchserver.page.documents import run_document


def changed(**changes: Any) -> dict[str, Any]:
    document = run_document()
    return {"over_time": {**document["over_time"], **changes}}


def test_cells_percentiles_and_counts_of_each_slot() -> None:
    seen = over_time(run_document())
    assert seen is not None
    assert (seen.slots, seen.slot_s) == (4, 1.0)
    assert seen.counts("RETRIEVE") == {0: 10, 3: 30}
    assert seen.percentiles("RETRIEVE", 50) == {0: 2.0, 3: 4.0}
    assert seen.percentiles("RETRIEVE", 99) == {0: 8.0, 3: 4.0}
    assert seen.moved == {"STORE": {0: 1e9, 2: 5e8}}
    assert seen.units[3] == (2, 1, 0)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"over_time": []},
        changed(slots=0),
        changed(slots=10**9),
        changed(slot_s=0),
        changed(slot_s="1"),
    ],
)
def test_a_report_that_does_not_say_has_none(document: dict[str, Any]) -> None:
    assert over_time(document) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"bounds_ms": [2.0, 1.0]},
        {"bounds_ms": ["x"]},
        {"bounds_ms": [0.0, 1.0, 2.0]},
        {"series": {"RETRIEVE": [[9, 0, 1], [0, 9, 1], [0, 0, -1], [0.5]]}},
        {"series": {"RETRIEVE": "many"}},
        {"series": None},
    ],
)
def test_cells_that_lie_nowhere_are_left_out(changes: dict[str, Any]) -> None:
    seen = over_time(changed(**changes))
    assert seen is not None
    assert seen.cells == {}
