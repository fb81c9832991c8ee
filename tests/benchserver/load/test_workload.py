"""Token sequences: the same for the same seed, for ever, and no two alike."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from benchserver.load.workload import VOCABULARY, chunked_tokens, sequence_tokens


def oracle(seed: int, seq: int, count: int) -> list[int]:
    text = f"bench-server tokens v1\0{seed}\0{seq}".encode()
    raw = hashlib.shake_128(text).digest(4 * count)
    return [int.from_bytes(raw[i : i + 4], "little") % 128_000 for i in range(0, 4 * count, 4)]


def test_tokens_are_the_same_in_every_version() -> None:
    """--expect-warm looks for what an earlier run stored: these tokens may never change."""
    assert sequence_tokens(7, 0, 4) == [56853, 3244, 102211, 64346]


@given(st.integers(0, 2**63 - 1), st.integers(0, 1 << 40), st.integers(1, 300))
def test_tokens_are_those_of_the_oracle(seed: int, seq: int, count: int) -> None:
    tokens = sequence_tokens(seed, seq, count)
    assert tokens == oracle(seed, seq, count)
    assert len(tokens) == count
    assert all(type(token) is int and 0 <= token < VOCABULARY for token in tokens)


@given(st.integers(1, 100), st.integers(0, 100))
def test_a_shorter_request_is_a_prefix_of_a_longer_one(count: int, more: int) -> None:
    assert sequence_tokens(1, 2, count + more)[:count] == sequence_tokens(1, 2, count)


def test_sequences_differ_from_their_first_chunk_on() -> None:
    heads = {
        tuple(sequence_tokens(seed, seq, 16)) for seed in (1, 11, 111) for seq in (1, 11, 111, 1111)
    }
    assert len(heads) == 12


def test_some_sequences_have_two_chunks_of_equal_tokens() -> None:
    for seq in range(25):
        plain, tokens = sequence_tokens(7, seq, 50), chunked_tokens(7, seq, 50, 16)
        assert tokens[:16] == plain[:16]
        assert tokens[32:] == plain[32:]
        repeats = seq in (0, 10, 20)
        assert tokens[16:32] == (plain[:16] if repeats else plain[16:32])
        assert (tokens[16:32] == tokens[:16]) is repeats


@given(st.integers(0, 10), st.integers(1, 100), st.integers(0, 100), st.integers(1, 40))
def test_with_chunks_too_a_shorter_request_is_a_prefix_of_a_longer_one(
    seq: int, count: int, more: int, chunk: int
) -> None:
    short, long = (chunked_tokens(1, seq, n, chunk) for n in (count, count + more))
    assert len(short) == count
    assert long[:count] == short
