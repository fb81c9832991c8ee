"""What is counted of a history, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.history import LookupRecord, Outcome, SequenceRecord, TransferRecord
from benchserver.scenarios.baseline.plan import SKIPPED_TOKENS, Pass
from benchserver.scenarios.baseline.series import (
    LOOKUP_COLD,
    LOOKUP_WARM,
    RATES,
    RETRIEVE,
    RETRIEVE_PART,
    RETRIEVE_REPLY,
    SEQUENCE,
    SERIES,
    STORE,
    STORE_REPLY,
    VISIBLE,
    count,
)
from benchserver.stats.measures import Measures, Series

GoodSequence = Callable[..., SequenceRecord]


def counts(measures: Measures) -> dict[Series, int]:
    """Return how many latencies each series has, without the empty ones."""
    summaries = {name: measures.latencies[name].summary() for name in SERIES}
    return {name: summary.count for name, summary in summaries.items() if summary is not None}


def measured(record: SequenceRecord) -> Measures:
    measures = Measures(SERIES, RATES)
    count(record, measures)
    return measures


def changed(record: SequenceRecord, kind: type, **changes: Any) -> SequenceRecord:
    steps = tuple(
        replace(step, **changes) if isinstance(step, kind) else step for step in record.steps
    )
    return replace(record, steps=steps)


def test_a_good_history(good_sequence: GoodSequence) -> None:
    measures = measured(good_sequence())
    assert counts(measures) == {
        LOOKUP_COLD: 1,
        STORE: 2,
        LOOKUP_WARM: 1,
        RETRIEVE: 2,
        VISIBLE: 1,
        SEQUENCE: 1,
    }
    assert measures.attempted == 6
    # Two transfers of 1 MB: in 2 ms and in 1 ms each.
    assert measures.rates[STORE].gigabytes_per_s() == 0.5
    assert measures.rates[RETRIEVE].gigabytes_per_s() == 1.0
    cold, wall = (measures.latencies[name].summary() for name in (LOOKUP_COLD, SEQUENCE))
    assert cold is not None
    assert wall is not None
    assert (cold.max_ms, wall.max_ms) == (0.25, 12.0)


def test_a_part_of_a_sequence_has_a_series_of_its_own(good_sequence: GoodSequence) -> None:
    whole, measures = (
        measured(good_sequence()),
        measured(good_sequence(probes=frozenset({SKIPPED_TOKENS}))),
    )
    assert counts(measures) == {**counts(whole), RETRIEVE_PART: 2}
    assert measures.attempted == whole.attempted + 3
    assert measures.rates[RETRIEVE].gigabytes_per_s() == 1.0
    part = measures.latencies[RETRIEVE_PART].summary()
    assert part is not None
    assert (part.min_ms, part.max_ms) == (0.7, 0.7)


def test_replies_that_come_before_the_data_have_series_of_their_own(
    good_sequence: GoodSequence,
) -> None:
    record = changed(
        good_sequence(probes=frozenset({SKIPPED_TOKENS})), TransferRecord, replied_ns=400_000
    )
    measures, whole = measured(record), measured(good_sequence(probes=frozenset({SKIPPED_TOKENS})))
    assert counts(measures) == {**counts(whole), STORE_REPLY: 2, RETRIEVE_REPLY: 2}
    for name in (STORE_REPLY, RETRIEVE_REPLY):
        reply = measures.latencies[name].summary()
        assert reply is not None
        assert (reply.min_ms, reply.max_ms) == (0.4, 0.4)
    # Latencies and rates are those of the data.
    for name in (STORE, RETRIEVE):
        assert measures.latencies[name].summary() == whole.latencies[name].summary()
        assert measures.rates[name].gigabytes_per_s() == whole.rates[name].gigabytes_per_s()


def test_each_sequence_adds(good_sequence: GoodSequence) -> None:
    measures = Measures(SERIES, RATES)
    for seq in range(3):
        count(good_sequence(seq=seq), measures)
    assert counts(measures)[STORE] == 6
    assert measures.attempted == 18


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.UNKNOWN])
def test_what_got_no_good_answer_is_attempted_only(
    good_sequence: GoodSequence, outcome: Outcome
) -> None:
    record = changed(good_sequence(), TransferRecord, outcome=outcome, nbytes=0, replied_ns=0)
    measures = measured(changed(record, LookupRecord, outcome=outcome))
    assert counts(measures) == {SEQUENCE: 1}
    assert measures.attempted == 6
    assert measures.rates[STORE].gigabytes_per_s() is None


def test_every_lookup_of_a_wait_is_attempted(good_sequence: GoodSequence) -> None:
    measures = measured(
        changed(good_sequence(), LookupRecord, attempts=5, stored_ns=-7_000_000, ended_ns=0)
    )
    assert measures.attempted == 14
    lag = measures.latencies[VISIBLE].summary()
    assert lag is not None
    assert lag.max_ms == 7.0


def test_what_never_became_visible_has_no_lag(good_sequence: GoodSequence) -> None:
    measures = measured(changed(good_sequence(), LookupRecord, hits=0, expected=2))
    assert VISIBLE not in counts(measures)
    assert counts(measures)[LOOKUP_WARM] == 1


def test_expect_warm_counts_as_cold(good_sequence: GoodSequence) -> None:
    measures = measured(good_sequence(expect_warm=True))
    assert counts(measures) == {LOOKUP_COLD: 1, RETRIEVE: 2, SEQUENCE: 1}
    record = good_sequence(expect_warm=True)
    assert [s.which for s in record.steps if isinstance(s, LookupRecord)] == [Pass.COLD]


def test_reports_name_the_series_as_ever() -> None:
    assert [series.name for series in SERIES] == [
        "LOOKUP cold",
        "STORE",
        "STORE reply",
        "LOOKUP warm",
        "RETRIEVE",
        "RETRIEVE reply",
        "RETRIEVE part",
        "visibility lag",
        "sequence wall",
    ]
