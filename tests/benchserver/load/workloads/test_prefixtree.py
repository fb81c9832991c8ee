"""`prefix-tree`: paths through a tree, popular children more often, and tokens of their own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.workloads.parse import parse_workload
from benchserver.load.workloads.prefixtree import shares
from tests.benchserver.load.hits import ideal_hits
from tests.benchserver.load.workloads.bound import first, holds, terms

TEXT = "prefix-tree:branching=3,depth=2,own=20"


def test_a_request_is_a_path_of_nodes_and_its_own_end() -> None:
    for request in holds(TEXT, terms(num_tokens=100)):
        top, below, own = request.parts
        assert [part.count for part in request.parts] == [40, 40, 20]
        assert below.label.startswith(f"{top.label}/")
        assert own.label == f"prefix-tree own {request.number}"


def test_children_are_drawn_by_the_law_of_zipf() -> None:
    workload = parse_workload(f"{TEXT},zipf=1").bind(terms())
    count = 6000
    tops = Counter(request.parts[0].label for request in first(workload, count))
    for rank, share in ((0, 6 / 11), (1, 3 / 11), (2, 2 / 11)):
        assert abs(tops[f"prefix-tree/{rank}"] / count - share) < 0.03


def test_with_exponent_0_all_children_are_equal() -> None:
    workload = parse_workload(f"{TEXT},zipf=0").bind(terms())
    leaves = Counter(request.parts[1].label for request in first(workload, 9000))
    assert len(leaves) == 9
    assert all(abs(times / 1000 - 1) < 0.2 for times in leaves.values())


def test_in_the_end_all_but_the_own_tokens_are_hit() -> None:
    workload = parse_workload(TEXT).bind(terms(num_tokens=100))
    found = ideal_hits(first(workload, 500), 10).infinite
    missed = found.asked_chunks - found.hit_chunks
    assert missed == 500 * 2 + 3 * 4 + 9 * 4  # each node was missing once


@given(
    st.integers(1, 300),
    st.integers(1, 70_000),
    st.integers(1, 64),
    st.floats(0, 10),
    st.floats(0, 100),
)
def test_any_tree_has_requests_of_the_length_asked_for(
    num_tokens: int, branching: int, depth: int, zipf: float, own: float
) -> None:
    branching = min(branching, 65_536)
    text = f"prefix-tree:branching={branching},depth={depth},zipf={zipf!r},own={own!r}"
    found = holds(text, terms(num_tokens=num_tokens), 3)
    assert {request.num_tokens for request in found} == {num_tokens}


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_shares_differ_by_one_at_most(tokens: int, into: int) -> None:
    found = shares(tokens, into)
    assert len(found) == into
    assert sum(found) == tokens
    assert max(found) - min(found) <= 1


def test_its_line_says_what_it_asks() -> None:
    assert parse_workload("prefix-tree").bind(terms(num_tokens=100)).describe() == (
        "prefix-tree: requests of 100 tokens, 25 of their own behind 4 nodes with 8 children each, "
        "drawn by Zipf's law with exponent 1"
    )


@pytest.mark.parametrize(
    "values",
    ["branching=0", "branching=65537", "depth=0", "depth=65", "zipf=-1", "zipf=nan", "own=101"],
)
def test_what_is_out_of_bounds_is_one_line(values: str) -> None:
    key, _, value = values.partition("=")
    with pytest.raises(UsageError, match=f"{key} is {value}, expected a"):
        parse_workload(f"prefix-tree:{values}")


def test_no_value_stands_without_its_key() -> None:
    with pytest.raises(UsageError, match="8 is not known, expected prefix-tree"):
        parse_workload("prefix-tree:8")
