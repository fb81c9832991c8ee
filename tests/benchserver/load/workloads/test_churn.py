"""`churn:X`: X times what the server's L1 holds, each once, then drawn with equal chances."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.workloads.parse import parse_workload
from tests.benchserver.load.hits import ideal_hits
from tests.benchserver.load.workloads.bound import first, holds, terms

L1 = terms(num_tokens=64, chunk_tokens=16, chunk_bytes=1024, l1_bytes=64 * 1024)
"""Requests of four chunks; L1 holds 16 of them."""


def test_the_working_set_is_so_many_times_l1() -> None:
    found = holds("churn:2", L1, 32 + 3200)
    labels = [request.parts[0].label for request in found]
    assert labels[:32] == [f"churn {at}" for at in range(32)]
    drawn = Counter(labels[32:])
    assert set(drawn) == set(labels[:32])
    assert all(50 < times < 160 for times in drawn.values())


@pytest.mark.parametrize(("times", "documents"), [("0.01", 1), ("0.5", 8), ("1", 16), ("2.5", 40)])
def test_any_share_of_l1_can_be_asked_for(times: str, documents: int) -> None:
    labels = {request.parts[0].label for request in holds(f"churn:{times}", L1, 2000)}
    assert len(labels) == documents


def test_an_l1_that_is_too_small_hits_about_its_share() -> None:
    asked = first(parse_workload("churn:2").bind(L1), 5000)
    ideal = ideal_hits(asked, 16, lru_chunks=64)
    assert ideal.lru is not None
    assert 0.45 < ideal.lru.ratio < 0.52
    assert ideal.infinite.hit_chunks == (5000 - 32) * 4


def test_what_a_user_says_of_l1_goes_before_what_the_server_says() -> None:
    for size in ("32768", "32KiB"):
        found = parse_workload(f"churn:2,l1={size}").bind(L1)
        assert found.describe() == (
            "churn: 16 different requests of 64 tokens, 2 times an L1 of 32 chunks; each once, "
            "then drawn"
        )


def test_where_nobody_knows_l1_it_asks_for_it() -> None:
    with pytest.raises(UsageError) as caught:
        parse_workload("churn:2").bind(terms(l1_bytes=0))
    assert str(caught.value) == (
        "--workload churn:2: the server does not say how large its L1 is; say it, as in "
        "churn:2,l1=4GiB"
    )
    assert parse_workload("churn:2,l1=4GiB").bind(terms(l1_bytes=0)).max_tokens == 64


def test_an_l1_that_holds_no_chunk_is_refused() -> None:
    with pytest.raises(UsageError, match="an L1 of 1023 bytes holds no chunk of 1024 bytes"):
        parse_workload("churn:2").bind(terms(l1_bytes=1023))


@pytest.mark.parametrize("size", ["0", "-1", "", "4 GiB", "4GB", "nan", "1.5GiB", "9" * 16 + "TiB"])
def test_what_is_no_size_is_one_line(size: str) -> None:
    with pytest.raises(UsageError, match="l1 is not a size, expected bytes or KiB"):
        parse_workload(f"churn:2,l1={size}")


@pytest.mark.parametrize("times", ["0", "-1", "nan", "inf", "1001", "", "two"])
def test_what_is_no_number_of_times_is_one_line(times: str) -> None:
    with pytest.raises(UsageError, match=r"expected a number from 0\.01 to 1000"):
        parse_workload(f"churn:{times}")


@given(st.floats(0.01, 1000), st.integers(1, 500), st.integers(1024, 1 << 40))
def test_any_churn_has_requests_of_the_length_asked_for(
    times: float, num_tokens: int, l1_bytes: int
) -> None:
    found = holds(f"churn:{times!r}", terms(num_tokens=num_tokens, l1_bytes=l1_bytes), 5)
    assert {request.num_tokens for request in found} == {num_tokens}
