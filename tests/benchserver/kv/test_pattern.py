"""Page content against an oracle in plain Python integers, and what it must guarantee."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchserver.kv.pattern import (
    CANARY_BYTE,
    POISON_BYTE,
    GroupPattern,
    chunk_digests,
    content_seed,
    is_filled_with,
)
from shapespec import DTYPES, GroupSpec, page_bytes, parse_shape_spec

M64 = (1 << 64) - 1
CHUNK_TOKENS = 4
BLOCKS = 2

# Pages of 3, 132, 584 (no multiple of 8 bytes, or odd rows), 8, 96 and 16 bytes.
SPECS = (
    "(1,4,1,1,3):uint8:2",
    "(1,4,1,1,132):uint8:2",
    "(1,4,2,1,292):int8:2",
    "(2,4,1,1,66):float16:2",
    "(2,4,2,1,2):float16:2",
    "(2,4,3,2,8):bfloat16:2",
    "(1,4,1,2,2):float32:2",
)


def group_of(text: str) -> GroupSpec:
    return parse_shape_spec(text).groups[0]


def pattern_of(
    root: bytes, group: GroupSpec, *, index: int = 0, first_layer: int = 0
) -> GroupPattern:
    return GroupPattern(root, group, index=index, first_layer=first_layer, blocks_per_chunk=BLOCKS)


def mixed(value: int) -> int:
    """SplitMix64's output for the state `value`, as published."""
    z = (value + 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def oracle(
    root: bytes,
    group: GroupSpec,
    index: int,
    digest: int,
    *,
    rank: int,
    layer: int,
    plane: int,
    block: int,
) -> bytes:
    """Return a page byte by byte, as the module's docstring describes it."""
    size, item = page_bytes(group), group.dtype.item_bytes
    table = hashlib.shake_128(root + index.to_bytes(4, "little")).digest(size)
    key = mixed(digest ^ mixed(rank << 48 | layer << 32 | plane << 28 | block))
    key_bytes = key.to_bytes(8, "little")
    return bytes(
        (table[i] ^ key_bytes[i % 8]) & (0xBF if i % item == item - 1 else 0xFF)
        for i in range(size)
    )


class Place(NamedTuple):
    seed: int
    prefix: tuple[int, ...]
    rank: int
    layer: int
    plane: int
    block: int


def page_at(group: GroupSpec, place: Place) -> bytes:
    root = content_seed(place.seed, "")
    digest = chunk_digests(root, place.prefix, CHUNK_TOKENS)[-1]
    pattern = pattern_of(root, group)
    keys = pattern.page_keys([digest], rank=place.rank, layer=place.layer)
    return pattern.expected_page(int(keys[place.plane, place.block])).tobytes()


PREFIXES = st.integers(1, 3).flatmap(
    lambda chunks: st.tuples(*[st.integers(0, 3)] * (chunks * CHUNK_TOKENS))
)
PLACES = st.builds(
    Place,
    st.integers(0, 3),
    PREFIXES,
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, BLOCKS - 1),
)


@pytest.mark.parametrize("text", SPECS)
def test_pages_are_those_of_the_oracle(text: str) -> None:
    group, root = group_of(text), content_seed(5, "tenant")
    digests = chunk_digests(root, range(100, 108), CHUNK_TOKENS)
    pattern = pattern_of(root, group, index=1, first_layer=2)
    assert pattern.layers == range(2, 4)
    for layer in pattern.layers:
        keys = pattern.page_keys(digests, rank=3, layer=layer)
        assert keys.shape == (group.kv_size, 2 * BLOCKS)
        for plane, column in np.ndindex(*keys.shape):
            chunk, block = divmod(column, BLOCKS)
            page = pattern.expected_page(int(keys[plane, column])).tobytes()
            assert page == oracle(
                root, group, 1, digests[chunk], rank=3, layer=layer, plane=plane, block=block
            )


def test_content_is_the_same_in_every_version() -> None:
    """--expect-warm compares with what an earlier run stored: these bytes may never change."""
    assert content_seed(1, "").hex() == "6feb149c50a80b994aa76d428da197e7"
    group = group_of("(2,4,1,1,4):float16:1")
    assert page_at(group, Place(1, (1, 2, 3, 4), 0, 0, 1, 0)).hex() == "cf8c9096bb3d24a8"


def test_roots_differ_by_seed_and_salt() -> None:
    roots = [content_seed(seed, salt) for seed in (0, 1, 10) for salt in ("", "a", "b", "\udcff")]
    assert len(set(roots)) == len(roots)
    assert all(len(root) == 16 for root in roots)


@given(left=PLACES, right=PLACES, text=st.sampled_from([t for t in SPECS if "1,3)" not in t]))
def test_pages_of_two_places_differ(left: Place, right: Place, text: str) -> None:
    assume(left != right)
    group = group_of(text)
    if group.is_mla:
        assume(left._replace(plane=0) != right._replace(plane=0))
        left, right = left._replace(plane=0), right._replace(plane=0)
    assert page_at(group, left) != page_at(group, right)


@pytest.mark.parametrize("field", ["seed", "prefix", "rank", "layer", "plane", "block"])
def test_a_page_depends_on_each_part_of_its_place(field: str) -> None:
    group = group_of("(2,4,4,2,16):float16:2")
    place = Place(0, (9, 8, 7, 6), 0, 0, 0, 0)
    changes: dict[str, Any] = {field: (9, 8, 7, 5) if field == "prefix" else 1}
    other = place._replace(**changes)
    pages = [np.frombuffer(page_at(group, p), np.uint64) for p in (place, other)]
    # Not one word agrees: a single word tells whose page it is.
    assert not (pages[0] == pages[1]).any()


def test_groups_of_one_shape_have_their_own_positions() -> None:
    group, root = group_of("(2,4,4,2,16):float16:2"), content_seed(0, "")
    first, second = (pattern_of(root, group, index=index).words for index in (0, 1))
    assert not (first == second).any()


def test_no_two_positions_of_a_page_look_alike() -> None:
    pattern = pattern_of(content_seed(0, ""), group_of("(2,4,16,8,128):float16:1"))
    assert len(set(pattern.words.tolist())) == pattern.words.size == 16 * 8 * 128 * 2 // 8


@given(
    seed=st.integers(0, 2**63 - 1),
    digest=st.integers(0, M64),
    rank=st.integers(0, 255),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_values_are_finite_and_never_poison(seed: int, digest: int, rank: int, dtype: str) -> None:
    group = group_of(f"(2,4,4,2,16):{dtype}:2")
    item = group.dtype.item_bytes
    pattern = pattern_of(content_seed(seed, ""), group)
    keys = pattern.page_keys([digest], rank=rank, layer=1)
    for key in keys.flat:
        page = pattern.expected_page(int(key))
        top = page[item - 1 :: item]
        assert not (top & 0x40).any()
        assert POISON_BYTE not in top
        assert CANARY_BYTE not in top
        if dtype == "bfloat16":
            wide = page.view("<u2").astype("<u4") << 16
            assert np.isfinite(wide.view("<f4")).all()
        elif dtype == "float8_e4m3fn":
            assert not (page & 0x7F == 0x7F).any()  # NaN; this format has no infinities
        elif dtype == "float8_e5m2":
            assert not (page & 0x7C == 0x7C).any()  # infinities and NaNs
        elif "float" in group.dtype.name:
            assert np.isfinite(page.view(f"<f{item}")).all()


def test_poison_and_canary_are_never_valid() -> None:
    assert POISON_BYTE & 0x40
    assert CANARY_BYTE & 0x40
    assert POISON_BYTE != CANARY_BYTE


@given(
    shared=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    left=st.lists(st.integers(0, 2**32 - 1), max_size=12),
    right=st.lists(st.integers(0, 2**32 - 1), max_size=12),
)
def test_digests_chain_over_the_prefix(
    shared: list[int], left: list[int], right: list[int]
) -> None:
    root = content_seed(0, "")
    a, b = (chunk_digests(root, shared + tail, CHUNK_TOKENS) for tail in (left, right))
    assert len(a) == (len(shared) + len(left)) // CHUNK_TOKENS
    for chunk, (ours, theirs) in enumerate(zip(a, b, strict=False)):
        end = (chunk + 1) * CHUNK_TOKENS
        assert (ours == theirs) == ((shared + left)[:end] == (shared + right)[:end])


def test_digests_are_keyed_by_the_root_and_ignore_a_partial_chunk() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7]
    one, other = (chunk_digests(content_seed(seed, ""), tokens, 4) for seed in (1, 2))
    assert len(one) == 1
    assert one != other
    assert one == chunk_digests(content_seed(1, ""), tokens[:4], 4)
    assert chunk_digests(content_seed(1, ""), tokens[:3], 4) == ()


def test_a_digest_is_blake2b_over_state_and_tokens() -> None:
    root = content_seed(3, "")
    state = hashlib.blake2b(root + bytes.fromhex("01000000ffffffff"), digest_size=16).digest()
    second = hashlib.blake2b(state + bytes.fromhex("0200000000000000"), digest_size=16).digest()
    expected = tuple(int.from_bytes(s[:8], "little") for s in (state, second))
    assert chunk_digests(root, [1, 2**32 - 1, 2, 0], 2) == expected


@pytest.mark.parametrize("text", SPECS)
def test_keys_xor_with_words_over_any_leading_axes(text: str) -> None:
    pattern = pattern_of(content_seed(0, ""), group_of(text))
    keys = pattern.page_keys([1, 2, 3], rank=0, layer=0)
    pages = np.bitwise_xor(pattern.words, pattern.key_words(keys)).view(np.uint8)
    for plane, column in np.ndindex(*keys.shape):
        expected = pattern.expected_page(int(keys[plane, column]))
        assert pages[plane, column].tobytes() == expected.tobytes()


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=40), st.integers(0, 255))
def test_is_filled_with(page: bytes, byte: int) -> None:
    assert is_filled_with(np.frombuffer(page, np.uint8), byte) == (set(page) == {byte})
    assert is_filled_with(np.full(9, byte, np.uint8), byte)


def test_plane_names() -> None:
    pattern = pattern_of(bytes(16), group_of("(2,4,4,1,8):float16:2"))
    assert [pattern.plane_name(plane) for plane in (0, 1)] == ["K", "V"]
    assert pattern_of(bytes(16), group_of("(1,4,4,1,8):float16:2")).plane_name(0) == "latent"
