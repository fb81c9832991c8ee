"""`unique`: requests of one length, and none has a chunk of another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.request import chunk_ids
from benchserver.load.workloads.parse import parse_workload
from tests.benchserver.load.workloads.bound import holds, terms


@given(st.integers(1, 100), st.integers(1, 40))
def test_no_two_requests_have_a_chunk_in_common(num_tokens: int, chunk: int) -> None:
    found = holds("unique", terms(num_tokens=num_tokens))
    assert {request.num_tokens for request in found} == {num_tokens}
    ids = [one for request in found for one in chunk_ids(request, chunk)]
    assert len(set(ids)) == len(ids)


def test_its_line_says_what_it_asks() -> None:
    workload = parse_workload("unique").bind(terms(num_tokens=100))
    assert workload.describe() == "unique: requests of 100 tokens, none in common"
    assert workload.count is None
