"""Records: durations and labels out of what they hold."""

from __future__ import annotations

from collections.abc import Callable

from benchserver.history import (
    EndRecord,
    LookupRecord,
    Outcome,
    Probe,
    SequenceRecord,
    TransferRecord,
    sequence_label,
)

GoodSequence = Callable[..., SequenceRecord]


def test_durations_are_those_between_instants() -> None:
    ended = EndRecord(
        name="END_SESSION", request_id="r", outcome=Outcome.OK, began_ns=100, ended_ns=350
    )
    assert ended.latency_ns == 250
    moved = TransferRecord(
        name="STORE",
        rank=0,
        outcome=Outcome.OK,
        chunks=1,
        total=1,
        nbytes=1,
        began_ns=1_000,
        replied_ns=1_400,
        ended_ns=2_000,
    )
    assert (moved.reply_latency_ns, moved.latency_ns) == (400, 1_000)


def test_a_lookup_lags_behind_the_store_that_it_waits_for() -> None:
    found = LookupRecord(
        which="warm", outcome=Outcome.OK, hits=2, expected=2, total=2, began_ns=700, ended_ns=900
    )
    assert (found.name, found.latency_ns, found.lag_ns) == ("LOOKUP", 200, 0)
    waited = LookupRecord(
        which="warm",
        outcome=Outcome.OK,
        hits=2,
        expected=2,
        total=2,
        began_ns=700,
        ended_ns=900,
        stored_ns=400,
    )
    assert (waited.latency_ns, waited.lag_ns) == (200, 500)


def test_a_sequence_knows_its_lookups_by_what_they_are_for(good_sequence: GoodSequence) -> None:
    record = good_sequence()
    cold, warm = record.lookup("cold"), record.lookup("warm")
    assert cold is record.steps[0]
    assert warm is not None
    assert warm.hits == 2
    assert record.lookup("salt") is None
    assert record.wall_ns == 12_000_000


def test_what_lines_call_a_sequence(good_sequence: GoodSequence) -> None:
    assert good_sequence(seq=7).label == sequence_label(7, "") == "seq=7"
    assert sequence_label(7, "equal chunks") == "seq=7, equal chunks"


def test_a_probe_is_its_name() -> None:
    assert Probe("partial") == Probe("partial") != Probe("bounds")
