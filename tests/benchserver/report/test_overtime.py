"""What happened when, as JSON has it."""

from __future__ import annotations

from benchserver.check.verdict import Verdict
from benchserver.report.overtime import over_time_document
from benchserver.stats.measures import Measures, Series

S = 1_000_000_000
STORE, RETRIEVE = Series("STORE"), Series("RETRIEVE")


class Hand:
    """A clock that a test moves."""

    now_ns = 3 * S

    def __call__(self) -> int:
        return self.now_ns


def test_all_series_share_columns_and_rows() -> None:
    hand = Hand()
    measures = Measures([STORE, RETRIEVE, Series("PING")], [STORE], hand)
    for second in (0, 1, 300):
        hand.now_ns = (3 + second) * S
        measures.latencies[STORE].add(8_000_000)
        measures.rates[STORE].add(100, 5)
    hand.now_ns = 4 * S  # another series has seen less, so its columns are shorter
    measures.latencies[RETRIEVE].add_censored(64_000_000)
    measures.concluded(Verdict.VALID.value)
    measures.concluded(Verdict.INVALID.value)
    found = over_time_document(measures)
    assert (found["slot_s"], found["slots"]) == (2, 151)
    assert found["series"]["STORE"] == [[0, 0, 2], [150, 0, 1]]
    [[slot, row, count]] = found["series"]["RETRIEVE"]
    assert (slot, count) == (0, 1)
    bounds = found["bounds_ms"]
    assert bounds[0] <= 8 < bounds[1]
    assert bounds[row] <= 64 < bounds[row + 1]
    assert found["bytes"] == {"STORE": [[0, 200], [150, 100]]}
    assert found["units"] == [[0, 1, 1, 0]]
    assert "PING" not in found["series"]


def test_a_run_that_did_nothing_has_no_columns() -> None:
    found = over_time_document(Measures([STORE], [STORE]))
    assert found == {
        "slot_s": 1, "slots": 0, "bounds_ms": [], "series": {}, "bytes": {}, "units": [],
    }  # fmt: skip
