"""Tokens and draws: equal for equal names and seeds, whatever else is drawn, and well spread."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.request import Part, Request
from benchserver.load.tokens import GAMMA, Draws, Tokens, mixed, start_of
from benchserver.load.workload import VOCABULARY

NAMES = st.text(st.characters(codec="utf-8"), max_size=10)


def oracle(seed: int, part: Part) -> list[int]:
    digest = hashlib.blake2b(f"bench-server load v1\0{seed}\0{part.label}".encode(), digest_size=8)
    start = int.from_bytes(digest.digest(), "little")
    return [(mixed(start + at * GAMMA) >> 32) * VOCABULARY >> 32 for at in range(part.count)]


def test_mixing_is_that_of_splitmix64() -> None:
    """The first numbers of the published generator for the seed 1234567."""
    assert [mixed(1234567 + at * GAMMA) for at in (1, 2, 3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_tokens_are_the_same_in_every_version() -> None:
    """A run with the seed of an earlier one asks for what that one stored."""
    assert Tokens(7).ids(Request(number=0, parts=(Part("a", 3), Part("b", 1)))) == [
        35172,
        106431,
        35645,
        35653,
    ]


@given(st.integers(0, 2**63 - 1), st.lists(st.builds(Part, NAMES, st.integers(1, 50)), min_size=1))
def test_tokens_are_those_of_each_part_in_turn(seed: int, parts: list[Part]) -> None:
    request = Request(number=0, parts=tuple(parts))
    ids = Tokens(seed).ids(request)
    assert ids == [token for part in parts for token in oracle(seed, part)]
    assert all(type(token) is int and 0 <= token < VOCABULARY for token in ids)
    assert Tokens(seed).array(request).tolist() == ids


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 50))
def test_a_longer_part_begins_as_a_shorter_one(count: int, more: int, before: int) -> None:
    short = Tokens(1).ids(Request(number=0, parts=(Part("x", count),)))
    parts = (Part("y", before), Part("x", count + more))
    long = Tokens(1).ids(Request(number=1, parts=parts))
    assert long[before : before + count] == short


def test_other_seeds_and_names_begin_elsewhere() -> None:
    heads = {
        tuple(Tokens(seed).ids(Request(number=0, parts=(Part(label, 16),))))
        for seed in (1, 11, 111)
        for label in ("1", "11", "unique 1", "unique 11")
    }
    assert len(heads) == 12


def test_another_process_draws_the_same() -> None:
    code = (
        "from benchserver.load.request import *; from benchserver.load.tokens import *; "
        "r = Request(number=0, parts=(Part('a', 5), Part('b', 5))); "
        "print(Tokens(9).ids(r), Draws.named(9, 'c').share(4))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ids = Tokens(9).ids(Request(number=0, parts=(Part("a", 5), Part("b", 5))))
    assert ran.stdout.strip() == f"{ids} {Draws.named(9, 'c').share(4)}"


@given(st.integers(0, 2**64 - 1), st.integers(0, 1 << 50))
def test_shares_lie_inside_0_and_1(start: int, place: int) -> None:
    assert 0 < Draws(start).share(place) < 1


def test_the_ends_of_shares_have_a_logarithm() -> None:
    """`mixed` is one to one, so that some start gives each share; these are the outermost."""
    least, most = 0.5 / (1 << 52), ((1 << 52) - 0.5) / (1 << 52)
    assert least > 0
    assert most < 1
    assert math.isfinite(math.log(least))


def test_shares_are_spread_evenly() -> None:
    draws = Draws.named(5, "spread")
    shares = sorted(draws.share(place) for place in range(10_000))
    distance = max(abs(share - at / 10_000) for at, share in enumerate(shares))
    assert distance < 1.63 / 100  # Kolmogorov and Smirnov, at 1 per cent
    assert start_of(5, "spread") == draws.start
