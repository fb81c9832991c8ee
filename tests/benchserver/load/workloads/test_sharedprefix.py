"""`shared-prefix:P`: so many per cent of the tokens in common, and the rest in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.request import chunk_ids
from benchserver.load.tokens import Tokens
from benchserver.load.workloads.parse import parse_workload
from tests.benchserver.load.workloads.bound import holds, terms


@pytest.mark.parametrize(("percent", "shared"), [(0, 0), (25, 4), (75, 12), (95, 15), (100, 16)])
def test_requests_share_that_many_chunks(percent: int, shared: int) -> None:
    one, other = holds(f"shared-prefix:{percent}", terms(num_tokens=160), 2)
    pairs = zip(chunk_ids(one, 10), chunk_ids(other, 10), strict=True)
    assert [a == b for a, b in pairs] == [True] * shared + [False] * (16 - shared)


@given(st.floats(0, 100), st.integers(1, 300))
def test_requests_share_that_part_of_their_tokens(percent: float, num_tokens: int) -> None:
    found = holds(f"shared-prefix:{percent!r}", terms(num_tokens=num_tokens), 3)
    one, other, _ = (Tokens(1).ids(request) for request in found)
    shared = round(num_tokens * percent / 100)
    assert len(one) == num_tokens
    assert one[:shared] == other[:shared]
    assert shared == num_tokens or one[shared:] != other[shared:] or num_tokens - shared < 3


def test_its_line_says_what_it_asks() -> None:
    workload = parse_workload("shared-prefix:75").bind(terms(num_tokens=100))
    assert workload.describe() == ("shared-prefix: requests of 100 tokens, the first 75 in common")


@pytest.mark.parametrize("percent", ["-1", "101", "nan", "inf", "", "half"])
def test_what_is_no_per_cent_is_one_line(percent: str) -> None:
    with pytest.raises(UsageError, match="expected a number from 0 to 100"):
        parse_workload(f"shared-prefix:{percent}")
