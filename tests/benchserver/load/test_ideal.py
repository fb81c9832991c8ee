"""Ideal caches: against models that remember everything, by hand, and in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.ideal import (
    MAX_LRU_CHUNKS,
    Ideal,
    InfiniteCache,
    LruCache,
    Tally,
)
from benchserver.load.request import Part, Request, chunk_ids
from tests.benchserver.load.hits import ideal_hits

ASKED = st.lists(
    st.lists(st.integers(0, 8).map(lambda n: bytes([n]) * 16), max_size=12), max_size=30
)
"""Any chunks in any order, also some that no chain of prefixes would make."""


def leading(chunks: list[bytes], held: list[bytes]) -> int:
    hits = [name in held for name in chunks]
    return hits.index(False) if False in hits else len(hits)


@given(ASKED)
def test_the_infinite_cache_is_a_set(asked: list[list[bytes]]) -> None:
    cache, held = InfiniteCache(1000), list[bytes]()
    for chunks in asked:
        # A chunk that comes twice in a request is there the second time.
        expected = next(
            (at for at, name in enumerate(chunks) if name not in held and name not in chunks[:at]),
            len(chunks),
        )
        assert cache.ask(chunks) == expected
        held += chunks
    assert not cache.forgets


@given(ASKED, st.integers(1, 10))
def test_the_lru_cache_forgets_what_was_least_recently_used(
    asked: list[list[bytes]], capacity: int
) -> None:
    cache, held = LruCache(capacity), list[bytes]()  # the latest at the end
    for chunks in asked:
        hits = leading(chunks, held)
        assert cache.ask(chunks) == hits
        for name in chunks:
            held = [*(one for one in held if one != name), name][-capacity:]


@given(ASKED, st.integers(1, 6))
def test_a_cache_that_forgets_has_at_least_the_last_chunks_and_never_more_than_all(
    asked: list[list[bytes]], remembered: int
) -> None:
    """Behind a chunk of a request that is missing, nothing is hit."""
    cache, everything, large = InfiniteCache(remembered), InfiniteCache(1000), LruCache(remembered)
    for chunks in asked:
        unique = list(dict.fromkeys(chunks))
        hits = cache.ask(unique)
        assert large.ask(unique) <= hits <= everything.ask(unique)


def test_it_says_when_it_has_begun_to_forget() -> None:
    cache = InfiniteCache(2)
    names = [bytes([n]) * 16 for n in range(6)]
    assert [cache.ask([name]) for name in names[:3]] == [0, 0, 0]
    assert cache.ask([names[0]]) == 1  # of the old generation
    assert cache.forgets  # the third name and the first filled the young one
    assert cache.ask([names[1]]) == 0


def request(number: int, *parts: Part) -> Request:
    return Request(number=number, parts=parts)


def test_hits_are_counted_by_chunks_and_by_tokens() -> None:
    """By hand: chunks of 10, requests of 35, 35 and 20 tokens, of which 25 begin alike."""
    asked = [
        request(0, Part("a", 25), Part("b", 10)),
        request(1, Part("a", 25), Part("c", 10)),
        request(2, Part("a", 20)),
    ]
    ideal = ideal_hits(asked, 10, lru_chunks=4)
    for tally in (ideal.infinite, ideal.lru):
        assert tally == Tally(10, asked_chunks=8, asked_tokens=90, hit_chunks=4)
        assert tally is not None
        assert tally.hit_tokens == 40
        assert tally.ratio == 40 / 90
    # Two chunks: each request of three drives out its own first one, until the third left both.
    small = ideal_hits([*asked, asked[0]], 10, lru_chunks=2)
    assert small.infinite.hit_chunks == 7
    assert small.lru is not None
    assert small.lru.hit_chunks == 2


def test_the_more_an_lru_holds_the_more_it_hits() -> None:
    asked = [request(at, Part(f"document {at * 7 % 5}", 40)) for at in range(100)]
    found = [ideal_hits(asked, 10, lru_chunks=held).lru for held in (1, 8, 16, 20, 1000)]
    hits = [tally.hit_chunks for tally in found if tally is not None]
    assert hits == sorted(hits)
    assert hits[0] == 0
    assert hits[-2:] == [95 * 4, 95 * 4]  # all five documents fit


def ask(ideal: Ideal, part: Part, *, counted: bool = True) -> int:
    chunk_tokens = ideal.infinite.chunk_tokens
    return ideal.ask(chunk_ids(request(0, part), chunk_tokens), part.count, counted=counted)


def test_it_says_why_no_lru_is_counted() -> None:
    unknown, large, fits = Ideal(10, 0), Ideal(10, MAX_LRU_CHUNKS + 1), Ideal(10, MAX_LRU_CHUNKS)
    assert unknown.why_no_lru == "the server does not say how many chunks its L1 holds"
    assert large.why_no_lru == "L1 holds 1048577 chunks, and no more than 1048576 are counted"
    assert unknown.lru is large.lru is None
    assert fits.why_no_lru == ""


def test_it_says_how_hits_are_to_be_read_once_it_forgets() -> None:
    ideal = Ideal(1, 0, remembered=8)
    assert ask(ideal, Part("a", 5)) == 0
    assert ask(ideal, Part("a", 6)) == 5
    assert ideal.bound == ""
    ask(ideal, Part("b", 8))
    ask(ideal, Part("c", 8))
    assert ideal.bound == "at least: a chunk is remembered until 8 others were asked for"


def test_a_warm_up_fills_the_caches_and_is_not_counted() -> None:
    ideal = Ideal(10, 100)
    assert ask(ideal, Part("a", 40), counted=False) == 0
    assert ask(ideal, Part("a", 40)) == 4
    expected = Tally(10, asked_chunks=4, asked_tokens=40, hit_chunks=4)
    assert ideal.infinite == ideal.lru == expected


def test_of_nothing_the_ratio_is_0() -> None:
    assert ideal_hits([], 10).infinite.ratio == 0.0


def test_what_it_takes_is_bounded_by_what_it_keeps() -> None:
    ideal = Ideal(256, 3, remembered=4)
    assert ideal.nbytes == 0
    for number in range(100):
        ideal.ask([b"%032d" % number], 256, counted=True)
    assert 0 < ideal.nbytes <= (2 * 4 + 3) * 100
