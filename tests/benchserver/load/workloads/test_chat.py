"""`chat`: conversations that grow by what was said, in rounds of users who think in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import UsageError
from benchserver.load.request import Request
from benchserver.load.tokens import Tokens
from benchserver.load.workloads.parse import parse_workload
from tests.benchserver.load.hits import ideal_hits
from tests.benchserver.load.workloads.bound import first, holds, terms


def of_user(found: list[Request], user: int, users: int) -> list[Request]:
    return [request for request in found if request.number % users == user]


def test_a_turn_begins_with_the_turn_before_it() -> None:
    found = holds("chat:turns=4,users=3,system=20", terms(num_tokens=100), 60)
    tokens = Tokens(1)
    for request in found:
        if request.after is not None and request.num_tokens > 40:
            before = tokens.ids(found[request.after])
            assert tokens.ids(request)[: len(before)] == before
            assert request.num_tokens == len(before) + 20


def test_conversations_grow_to_their_last_turn_and_begin_anew() -> None:
    found = first(parse_workload("chat:turns=4,users=3,system=20").bind(terms(num_tokens=100)), 60)
    lengths = [[request.num_tokens for request in of_user(found, user, 3)] for user in range(3)]
    # In the first round of conversations, users have 1, 2 and 3 turns.
    assert lengths[0][:9] == [40, 40, 60, 80, 100, 40, 60, 80, 100]
    assert lengths[1][:9] == [40, 60, 40, 60, 80, 100, 40, 60, 80]
    assert lengths[2][:9] == [40, 60, 80, 40, 60, 80, 100, 40, 60]


def test_users_and_conversations_have_only_the_system_prompt_in_common() -> None:
    found = first(parse_workload("chat:turns=2,users=2,system=50").bind(terms(num_tokens=64)), 40)
    beginnings = [request for request in found if request.num_tokens == 48]
    assert {request.parts[0].label for request in found} == {"chat"}
    assert len({request.parts[1] for request in beginnings}) == len(beginnings)


def test_a_turn_follows_the_users_last_one_and_some_time_to_think() -> None:
    found = first(parse_workload("chat:users=10,think=2").bind(terms()), 5000)
    assert [request.after for request in found[:10]] == [None] * 10
    assert [request.after for request in found[10:]] == list(range(4990))
    assert {request.think_ns for request in found[:10]} == {0}
    mean_s = sum(request.think_ns for request in found[10:]) / 4990 / 1e9
    assert abs(mean_s - 2) < 0.15
    assert len({request.think_ns for request in found[10:]}) > 4900


def test_nobody_has_to_think() -> None:
    found = first(parse_workload("chat:think=0").bind(terms()), 100)
    assert {request.think_ns for request in found} == {0}


def test_there_are_users_enough_for_the_requests_in_flight() -> None:
    found = first(parse_workload("chat").bind(terms(in_flight=5)), 20)
    assert [request.after for request in found] == [None] * 10 + list(range(10))


def test_what_a_turn_adds_is_all_that_misses() -> None:
    workload = parse_workload("chat:turns=4,users=3,system=20").bind(terms(num_tokens=100))
    found = ideal_hits(first(workload, 300), 20).infinite
    assert found.asked_chunks - found.hit_chunks == 300 + 1


@given(
    st.integers(1, 300),
    st.integers(1, 1000),
    st.integers(0, 50),
    st.floats(0, 100),
    st.floats(0, 3600),
)
def test_any_chat_asks_for_something_in_every_turn(
    num_tokens: int, turns: int, users: int, system: float, think: float
) -> None:
    text = f"chat:turns={turns},users={users},system={system!r},think={think!r}"
    holds(text, terms(num_tokens=num_tokens))


def test_its_line_says_what_it_asks() -> None:
    assert parse_workload("chat").bind(terms(num_tokens=100)).describe() == (
        "chat: 8 users, conversations of 8 turns that grow to 100 tokens, the first 25 in common, "
        "1 s to think on average"
    )


@pytest.mark.parametrize(
    "values", ["turns=0", "turns=1001", "users=-1", "system=101", "think=-1", "think=nan"]
)
def test_what_is_out_of_bounds_is_one_line(values: str) -> None:
    key, _, value = values.partition("=")
    with pytest.raises(UsageError, match=f"{key} is {value}, expected a"):
        parse_workload(f"chat:{values}")
