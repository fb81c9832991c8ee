"""Goals of single requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.clock import NS_PER_MS
from benchserver.errors import UsageError
from benchserver.load.goal import PARTS, Term, keeps, parse_goal


def test_terms_are_read_with_their_units() -> None:
    assert parse_goal("response<0.5s and retrieve <= 50ms and lookup<900us") == (
        Term("response", 500 * NS_PER_MS),
        Term("retrieve", 50 * NS_PER_MS),
        Term("lookup", 900_000),
    )


@pytest.mark.parametrize(
    "text",
    [
        "response",
        "response>5ms",
        "response<5",
        "response<-5ms",
        "response<nanms",
        "response<0ms",
        "response.p99<5ms",
        "ttft<5ms",
        "response<5ms and",
        "",
        "and",
        " ",
        "response<5ms, service<5ms",
        "response<1e9s",
    ],
)
def test_what_is_no_goal_is_wrong_usage_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_goal(text)
    assert str(caught.value).startswith("--goal ")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_goal_or_wrong_usage(text: str) -> None:
    try:
        terms = parse_goal(text)
    except UsageError:
        return
    assert all(term.part in PARTS and term.bound_ns > 0 for term in terms)


def test_every_term_must_hold() -> None:
    terms = parse_goal("response<5ms and store<2ms")
    assert keeps(terms, {"response": 5 * NS_PER_MS, "store": 2 * NS_PER_MS})
    assert not keeps(terms, {"response": 5 * NS_PER_MS, "store": 3 * NS_PER_MS})
    assert not keeps(terms, {"response": 6 * NS_PER_MS})
    assert keeps(terms, {"response": 1}), "a request that stored nothing waited for no STORE"
    assert keeps((), {})
