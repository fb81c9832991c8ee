"""`trace:FILE`: its requests at its instants, with equal tokens for equal hash ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchserver.errors import FatalError, UsageError
from benchserver.load.request import chunk_ids
from benchserver.load.tokens import Tokens
from benchserver.load.workloads.parse import parse_workload
from tests.benchserver.load.hits import ideal_hits
from tests.benchserver.load.workloads.bound import TRACE, first, holds, terms

LINES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(1, 2500), st.integers(0, 3)), min_size=1, max_size=8
)
"""Milliseconds since the line before, tokens, and which of some chains of blocks."""


def written(path: Path, lines: list[tuple[int, int, int]]) -> str:
    stamp, documents = 0, list[str]()
    for since_ms, tokens, chain in lines:
        stamp += since_ms
        ids = [chain // 2 * 100 + at if at < 2 else chain * 100 + at for at in range(5)]
        document = {
            "timestamp": stamp,
            "input_length": tokens,
            "output_length": 1,
            "hash_ids": ids[: -(-tokens // 512)],
        }
        documents.append(json.dumps(document) + "\n")
    path.write_text("".join(documents))
    return f"trace:{path}"


def test_requests_have_the_lengths_and_instants_of_the_file() -> None:
    found = holds(TRACE, terms())
    assert [request.num_tokens for request in found] == [1300, 1536, 2000]
    assert [request.not_before_ns for request in found] == [0, 0, 2_500_000_000]
    assert parse_workload(TRACE).bind(terms()).max_tokens == 2000


def test_equal_hash_ids_are_equal_tokens() -> None:
    one, other, last = (Tokens(1).ids(request) for request in holds(TRACE, terms()))
    assert one[:1024] == other[:1024] == last[:1024]
    assert one[1024:] != other[1024:1300]
    assert other == last[:1536]


@pytest.mark.parametrize(
    ("chunk", "asked", "hit"),
    [
        (512, 2 + 3 + 3, 0 + 2 + 3),
        (256, 5 + 6 + 7, 0 + 4 + 6),
        (16, 81 + 96 + 125, 0 + 64 + 96),
        (1024, 1 + 1 + 1, 0 + 1 + 1),
    ],
)
def test_tokens_are_what_counts_whatever_a_chunk_has(chunk: int, asked: int, hit: int) -> None:
    found = ideal_hits(holds(TRACE, terms()), chunk).infinite
    assert (found.asked_chunks, found.hit_chunks) == (asked, hit)


def test_speedup_divides_all_instants() -> None:
    found = first(parse_workload(TRACE, speedup=10).bind(terms()), 9)
    assert [request.not_before_ns for request in found] == [0, 0, 250_000_000]


def test_longer_requests_are_cut_to_their_first_tokens() -> None:
    workload = parse_workload(TRACE, max_input_tokens=1400).bind(terms())
    found, whole = first(workload, 9), holds(TRACE, terms())
    assert [request.num_tokens for request in found] == [1300, 1400, 1400]
    assert workload.max_tokens == 1400
    for one, other in zip(found, whole, strict=True):
        assert Tokens(1).ids(one) == Tokens(1).ids(other)[: one.num_tokens]


def test_its_line_says_what_it_asks() -> None:
    path = TRACE.partition(":")[2]
    shown = path if len(path) <= 80 else f"{path[:77]}..."
    asked = parse_workload(TRACE, speedup=2, max_input_tokens=1400).bind(terms())
    assert parse_workload(TRACE).bind(terms()).describe() == (
        f"trace {shown}: 3 requests over 2.5 s, 2000 tokens at most; answers are not stored"
    )
    assert asked.describe() == (
        f"trace {shown}: 3 requests over 2.5 s in 1.25 s, 1400 tokens at most; 2 cut to 1400; "
        "answers are not stored"
    )


@given(LINES, st.integers(1, 3000), st.sampled_from([16, 100, 256, 512, 1024]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_trace_has_chunks_in_common_exactly_where_it_has_blocks_in_common(
    tmp_path: Path, lines: list[tuple[int, int, int]], limit: int, chunk: int
) -> None:
    text = written(tmp_path / "trace.jsonl", lines)
    workload = parse_workload(text, max_input_tokens=limit).bind(terms())
    found = first(workload, 100)
    assert len(found) == workload.count == len(lines)
    assert max(request.num_tokens for request in found) == workload.max_tokens <= limit
    instants = [request.not_before_ns or 0 for request in found]
    assert instants[0] == 0
    assert instants == sorted(instants)
    for request, (_, _, chain) in zip(found, lines, strict=True):
        for other, (_, _, other_chain) in zip(found, lines, strict=True):
            pairs = zip(chunk_ids(request, chunk), chunk_ids(other, chunk), strict=False)
            same = sum(one == two for one, two in pairs)
            shortest = min(request.num_tokens, other.num_tokens)
            common = {True: 5 * 512, False: 2 * 512 if chain // 2 == other_chain // 2 else 0}
            assert same == min(shortest, common[chain == other_chain]) // chunk


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_trace_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"trace\.jsonl: no requests in it"):
        parse_workload(f"trace:{path}")


@pytest.mark.parametrize("lines", [[], [(0, 600, 0)], [(0, 600, 0)] * 3])
def test_a_trace_that_changes_during_the_run_ends_it(
    tmp_path: Path, lines: list[tuple[int, int, int]]
) -> None:
    path = tmp_path / "trace.jsonl"
    workload = parse_workload(written(path, [(0, 600, 0)] * 2)).bind(terms())
    written(path, lines)
    with pytest.raises(FatalError, match="has changed since the run began") as caught:
        first(workload, 9)
    assert f"had 2 requests, and has {len(lines)}" in str(caught.value)
    path.unlink()
    with pytest.raises(FatalError, match="No such file or directory"):
        first(workload, 9)


def test_its_options_are_for_a_trace_alone() -> None:
    with pytest.raises(UsageError, match="--speedup is for --workload trace:FILE, not for unique"):
        parse_workload("unique", speedup=1.0)
    with pytest.raises(UsageError, match="--max-input-tokens is for --workload trace:FILE"):
        parse_workload("chat", max_input_tokens=1)
