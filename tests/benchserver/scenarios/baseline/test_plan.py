"""Which sequence carries which probe, and every reason why a run cannot make one."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.history import Probe
from benchserver.scenarios.baseline.plan import (
    EQUAL_CHUNKS,
    OTHER_TENANTS,
    PROBES,
    REUSED_SOURCE,
    SHORTER_RANGE,
    SKIPPED_TOKENS,
    Probing,
)

ALL = frozenset(PROBES)


def probing(**changes: Any) -> Probing:
    fields: dict[str, Any] = {
        "start": 0,
        "end": 20,
        "chunks": 2,
        "blocks": 32,
        "transport": "handle",
        "expect_warm": False,
        "partial_every": 10,
        "partial_skip": "blocks",
    }
    return Probing(**(fields | changes))


REASONS: list[tuple[Probe, dict[str, Any], str]] = [
    (EQUAL_CHUNKS, {"chunks": 1, "blocks": 16}, "one chunk"),
    (EQUAL_CHUNKS, {"expect_warm": True, "start": 1, "end": 10}, "only 0, 10, 20, ..."),
    (REUSED_SOURCE, {"transport": "shm"}, "the client copies"),
    (REUSED_SOURCE, {"transport": "inline"}, "the client copies"),
    (REUSED_SOURCE, {"expect_warm": True}, "--expect-warm stores nothing"),
    (SKIPPED_TOKENS, {"partial_every": 0}, "--partial-retrieve-every 0"),
    (SKIPPED_TOKENS, {"transport": "shm"}, "the client copies"),
    (SKIPPED_TOKENS, {"chunks": 1, "blocks": 1}, "one block"),
    (SKIPPED_TOKENS, {"chunks": 1, "partial_skip": "chunks"}, "one chunk"),
    (SHORTER_RANGE, {"chunks": 1}, "one chunk"),
]


@pytest.mark.parametrize(("probe", "changes", "words"), REASONS)
def test_what_cannot_be_made_has_a_reason_and_no_sequence_owes_it(
    probe: Probe, changes: dict[str, Any], words: str
) -> None:
    asked = probing(**changes)
    assert words in asked.why_never(probe)
    assert not any(probe in asked.owed(seq) for seq in range(asked.start, asked.start + 20))


def test_every_probe_but_isolation_has_a_reason_here() -> None:
    assert {probe for probe, _, _ in REASONS} == ALL - {OTHER_TENANTS}


@pytest.mark.parametrize("start", [0, 1, 7, 10, 4711])
def test_the_first_sequence_carries_every_probe_whatever_its_number(start: int) -> None:
    asked = probing(start=start, end=start + 1)
    carried = set(asked.owed(start))
    if asked.needs_equal_chunks(start):
        carried.add(EQUAL_CHUNKS)
    assert carried == ALL
    assert all(asked.why_never(probe) == "" for probe in ALL)


@pytest.mark.parametrize("start", range(12))
@pytest.mark.parametrize("count", [1, 2, 3, 11])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("transport", ["handle", "shm"])
@pytest.mark.parametrize("expect_warm", [False, True])
def test_a_probe_is_carried_or_has_a_reason(
    start: int, count: int, chunks: int, transport: str, expect_warm: bool
) -> None:
    asked = probing(
        start=start,
        end=start + count,
        chunks=chunks,
        blocks=16 * chunks,
        transport=transport,
        expect_warm=expect_warm,
    )
    carried = {probe for seq in range(start, start + count) for probe in asked.owed(seq)}
    if any(asked.needs_equal_chunks(seq) for seq in range(start, start + count)):
        carried.add(EQUAL_CHUNKS)
    assert carried == {probe for probe in ALL if not asked.why_never(probe)}


def test_later_sequences_carry_what_their_number_says() -> None:
    asked = probing(start=3, end=None)
    assert asked.owed(3) == ALL - {EQUAL_CHUNKS}
    assert asked.owed(4) == frozenset()
    assert asked.owed(5) == {REUSED_SOURCE}
    assert asked.owed(10) == ALL - {REUSED_SOURCE}
    assert not any(asked.needs_equal_chunks(seq) for seq in range(4, 40))


def test_partial_retrieves_come_as_often_as_asked_for() -> None:
    asked = probing(start=2, end=None, partial_every=4)
    assert [seq for seq in range(2, 14) if SKIPPED_TOKENS in asked.owed(seq)] == [2, 4, 8, 12]


def test_the_source_is_reused_in_every_other_sequence_from_the_first_on() -> None:
    asked = probing(start=3, end=None)
    assert [seq for seq in range(3, 9) if REUSED_SOURCE in asked.owed(seq)] == [3, 5, 7]
    assert [seq for seq in range(3, 9) if asked.gives_back(seq)] == [3]


@pytest.mark.parametrize(("end", "left_out"), [(4, False), (5, False), (6, True), (None, True)])
def test_digests_are_left_out_once_a_source_stays_overwritten(
    end: int | None, left_out: bool
) -> None:
    asked = probing(start=3, end=end)
    assert asked.leaves_out_digests is left_out
    stays = [REUSED_SOURCE in asked.owed(seq) for seq in range(4, 7 if end is None else end)]
    assert any(stays) is left_out
    assert not probing(start=3, end=end, transport="shm").leaves_out_digests
