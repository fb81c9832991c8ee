"""Parts of requests, and names of chunks: equal exactly where all tokens up to there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.request import Part, Request, chunk_ids, first_tokens
from benchserver.load.tokens import Tokens

PARTS = st.lists(
    st.builds(Part, st.sampled_from(["a", "b", "c 1", "c 2"]), st.integers(1, 40)),
    min_size=1,
    max_size=8,
).map(tuple)


def request(*parts: Part) -> Request:
    return Request(number=0, parts=parts)


def test_a_request_has_the_tokens_of_all_its_parts() -> None:
    assert request(Part("a", 3), Part("b", 4)).num_tokens == 7


def test_first_tokens_ends_inside_a_part() -> None:
    parts = (Part("a", 3), Part("b", 4), Part("c", 5))
    assert first_tokens(parts, 100) == parts
    assert first_tokens(parts, 5) == (Part("a", 3), Part("b", 2))
    assert first_tokens(parts, 3) == (Part("a", 3),)


@given(PARTS, st.integers(1, 300))
def test_first_tokens_are_the_first_tokens(parts: tuple[Part, ...], limit: int) -> None:
    tokens = Tokens(3)
    cut = request(*first_tokens(parts, limit))
    assert tokens.ids(cut) == tokens.ids(request(*parts))[:limit]
    assert cut.num_tokens == min(limit, request(*parts).num_tokens)


@given(PARTS, PARTS, st.integers(1, 50))
def test_chunks_have_equal_names_exactly_where_all_tokens_up_to_them_are_equal(
    one: tuple[Part, ...], other: tuple[Part, ...], chunk: int
) -> None:
    first, second = request(*one), request(*other)
    ids, other_ids = chunk_ids(first, chunk), chunk_ids(second, chunk)
    assert len(ids) == first.num_tokens // chunk
    assert len(set(ids)) == len(ids)
    tokens, other_tokens = Tokens(3).ids(first), Tokens(3).ids(second)
    for at, (a, b) in enumerate(zip(ids, other_ids, strict=False)):
        end = (at + 1) * chunk
        assert (a == b) is (tokens[:end] == other_tokens[:end])


def test_names_of_chunks_do_not_depend_on_where_a_part_is_cut() -> None:
    long = chunk_ids(request(Part("a", 100)), 10)
    assert chunk_ids(request(Part("a", 35), Part("b", 65)), 10)[:3] == long[:3]
    assert chunk_ids(request(Part("a", 30), Part("b", 70)), 10)[:3] == long[:3]
