"""What a run knows to have stored."""

from __future__ import annotations

from benchserver.scenarios.load.model import Stored

A, B, C = b"a", b"b", b"c"


def test_a_chunk_is_possible_from_its_store_on_and_must_hit_once_that_was_answered() -> None:
    stored = Stored()
    assert (stored.acknowledged([A, B]), stored.possible([A, B])) == (0, 0)
    stored.begin([A, B])
    assert (stored.acknowledged([A, B]), stored.possible([A, B, C])) == (0, 2)
    stored.acknowledge([A], 5)
    assert (stored.acknowledged([A, B]), stored.possible([A, B, C])) == (1, 2)
    assert stored.since_ns(A) == 5
    stored.begin([A])
    assert stored.acknowledged([A]) == 1


def test_only_chunks_before_the_first_gap_count() -> None:
    stored = Stored()
    stored.acknowledge([A, C], 1)
    assert (stored.acknowledged([A, B, C]), stored.possible([A, B, C])) == (1, 1)


def test_a_loss_is_counted_once() -> None:
    stored = Stored()
    stored.acknowledge([A, B], 1)
    stored.missed(A)
    stored.missed(C)
    assert (stored.acknowledged([A, B]), stored.possible([A, B, C])) == (0, 2)
    stored.acknowledge([A], 2)
    assert (stored.acknowledged([A, B]), stored.since_ns(A)) == (2, 2)


def test_the_oldest_are_forgotten() -> None:
    stored = Stored(2)
    stored.acknowledge([A, B], 1)
    stored.acknowledge([A], 2)
    stored.acknowledge([C], 3)
    assert (stored.possible([A]), stored.possible([B]), stored.possible([C])) == (1, 0, 1)
    assert stored.forgotten == 1
