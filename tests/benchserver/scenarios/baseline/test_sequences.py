"""Which tokens, content and blocks a sequence has."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.geometry import Geometry
from benchserver.kv.blocks import BlockPlan, lease_plan
from benchserver.kv.pattern import chunk_digests
from benchserver.load.workload import chunked_tokens, equal_chunk_tokens
from benchserver.scenarios.baseline.plan import EQUAL_CHUNKS, PROBES, REUSED_SOURCE, Probing
from benchserver.scenarios.baseline.sequences import Sequences
from shapespec import parse_shape_spec

GEOMETRY = Geometry(
    spec=parse_shape_spec("(2,64,16,1,8):float16:2"), chunk_tokens=32, num_tokens=80
)
ROOT = bytes(range(16))


def blocks_of(turn: int) -> tuple[BlockPlan, ...]:
    return tuple(
        lease_plan(num_blocks=64, request_blocks=4, seed=7, turn=turn, rank=rank)
        for rank in range(2)
    )


def sequences(**changes: Any) -> Sequences:
    asked: dict[str, Any] = {
        "start": 0,
        "end": 20,
        "chunks": 2,
        "blocks": 4,
        "transport": "handle",
        "expect_warm": False,
        "partial_every": 10,
        "partial_skip": "blocks",
    }
    return Sequences(
        seed=7,
        geometry=GEOMETRY,
        content_root=ROOT,
        probing=Probing(**(asked | changes)),
        blocks=blocks_of,
    )


@pytest.mark.parametrize("seq", [0, 3, 10, 4711])
def test_a_sequence_is_made_of_its_number_alone(seq: int) -> None:
    plan = sequences().plan(seq)
    assert plan.tokens == chunked_tokens(7, seq, 80, 32)
    assert plan.digests == chunk_digests(ROOT, plan.tokens, 32)
    assert plan.plans == blocks_of(seq)
    assert plan.aside == ""
    # Where a run begins decides which probes it carries, and nothing else.
    first = sequences(start=seq, end=seq + 1).plan(seq)
    assert (first.tokens, first.digests, first.plans) == (plan.tokens, plan.digests, plan.plans)


def test_the_first_sequence_gives_its_source_back_and_later_ones_do_not() -> None:
    made = sequences()
    first, third, fourth = (made.plan(seq) for seq in (0, 2, 3))
    assert first.probes == frozenset(PROBES)
    assert (REUSED_SOURCE in third.probes, REUSED_SOURCE in fourth.probes) == (True, False)
    assert [plan.overwritten for plan in (first, third, fourth)] == [False, True, False]


def test_the_request_beside_has_equal_chunks_and_the_blocks_of_its_sequence() -> None:
    made = sequences(start=3)
    plan, aside = made.plan(3), made.plan_aside(3)
    assert made.probing.needs_equal_chunks(3)
    assert aside.tokens == equal_chunk_tokens(7, 3, 80, 32)
    assert list(aside.tokens[:32]) == list(aside.tokens[32:64])
    assert aside.tokens != plan.tokens
    assert (aside.seq, aside.aside) == (3, "equal chunks")
    assert aside.probes == {EQUAL_CHUNKS}
    assert aside.plans == plan.plans
    assert aside.digests == chunk_digests(ROOT, aside.tokens, 32)
