"""What is seen in a pool in real shared memory: content, skipped blocks, canaries and guards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence, EvidenceKind, PageOwner
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE
from benchserver.kv.verify import verify, verify_canaries, verify_skipped
from shapespec import (
    chunk_bytes,
    parse_shape_spec,
    planes,
)
from tests import pools
from tests.pools import CHUNKS, CLASSIC, DIGESTS, OTHER, PAST, U8, expected_page, plan, plane_name

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

MLA = "(1,24,2,1,8):bfloat16:3"
ODD = "(1,24,1,1,132):uint8:1"
TINY = "(2,24,1,1,3):int8:2"
MIXED = "(2,24,2,2,4):float32:1;(1,24,2,1,292):uint8:2"
SPECS = (CLASSIC, MLA, ODD, TINY, MIXED)


def memory_of(segment: SharedSegment) -> U8:
    return np.frombuffer(segment.buffer, np.uint8)


def layers_of(segment: SharedSegment, text: str) -> list[U8]:
    return pools.layers_of(memory_of(segment), text)


def restore(pool: HostPool, segment: SharedSegment, text: str, window: Window) -> None:
    """Write what a good RETRIEVE leaves in a destination: pages one by one, canaries kept."""
    spec = parse_shape_spec(text)
    pool.poison(window)
    for layer, pages in enumerate(layers_of(segment, text)):
        for plane in range(pages.shape[0]):
            for column, block_id in enumerate(window.block_ids):
                page = expected_page(spec, layer, plane, DIGESTS[column // 2], column % 2)
                pages[plane, block_id] = np.frombuffer(page, np.uint8)


@pytest.mark.parametrize("text", SPECS)
def test_a_restored_destination_matches(open_pool: OpenPool, text: str) -> None:
    _, window = plan()
    spec = parse_shape_spec(text)
    with open_pool(text) as (pool, segment):
        restore(pool, segment, text, window)
        seen = verify(pool, window, DIGESTS, PAST)
        assert seen.kind is EvidenceKind.MATCH
        assert seen.first is None
        assert seen.pages == 8 * sum(group.layers * planes(group) for group in spec.groups)
        assert seen.checked_bytes == CHUNKS * chunk_bytes(spec, 2 * spec.block_size)
        assert verify_canaries(pool, window).kind is EvidenceKind.MATCH


@settings(max_examples=150)
@given(data=st.data())
def test_any_flipped_byte_is_found_with_its_place(open_pool: OpenPool, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SPECS))
    _, window = plan(data.draw(st.integers(0, 3)))
    with open_pool(text) as (pool, segment):
        restore(pool, segment, text, window)
        layers = layers_of(segment, text)
        layer = data.draw(st.integers(0, len(layers) - 1))
        plane = data.draw(st.integers(0, layers[layer].shape[0] - 1))
        column = data.draw(st.integers(0, 7))
        offset = data.draw(st.integers(0, layers[layer].shape[2] - 1))
        bits = data.draw(st.integers(1, 255))
        page = layers[layer][plane, window.block_ids[column]]
        right = page.tobytes()
        page[offset] ^= bits
        wrong = page.tobytes()
        seen = verify(pool, window, DIGESTS, PAST)
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.bad_pages == 1
    fault = seen.first
    assert fault is not None
    assert fault.place == PageOwner(
        label="",
        chunk=column // 2,
        rank=0,
        layer=layer,
        plane=plane_name(text, layer, plane),
        block=column % 2,
    )
    assert fault.block_id == window.block_ids[column]
    assert fault.offset == offset
    assert fault.expected == right[offset : offset + 8]
    assert fault.seen == wrong[offset : offset + 8]


def test_the_group_of_a_fault_is_named(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(MIXED) as (pool, segment):
        restore(pool, segment, MIXED, window)
        layers_of(segment, MIXED)[2][0, window.block_ids[5], 1] ^= 1
        fault = verify(pool, window, DIGESTS, ()).first
    assert fault is not None
    assert (fault.group, fault.place.layer) == (1, 2)


@pytest.mark.parametrize("which", [0, 1])
def test_the_first_fault_is_the_first_of_the_block_table(open_pool: OpenPool, which: int) -> None:
    window = plan()[which]
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        layers = layers_of(segment, CLASSIC)
        for plane, column in ((0, 6), (1, 2), (0, 3)):
            layers[0][plane, window.block_ids[column], 0] ^= 1
        seen = verify(pool, window, DIGESTS, ())
    assert seen.bad_pages == 3
    assert seen.first is not None
    assert (seen.first.place.plane, seen.first.place.chunk, seen.first.place.block) == ("V", 1, 0)


def owner_after(open_pool: OpenPool, digests: tuple[int, ...], rank: int) -> str:
    """Fill a destination with other content, as a confused server would; say whose it is."""
    window = Window(first=3, count=8, block_ids=tuple(range(3, 11)), canaries=())
    with open_pool(CLASSIC, content_rank=rank, ranks=4) as (other, theirs):
        other.fill(window, digests)
        content = [pages.copy() for pages in layers_of(theirs, CLASSIC)]
    with open_pool(CLASSIC, ranks=4) as (pool, segment):
        for pages, copied in zip(layers_of(segment, CLASSIC), content, strict=True):
            pages[:] = copied
        seen = verify(pool, window, DIGESTS, PAST)
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.first is not None
    return seen.first.owner


def test_swapped_chunks_name_each_other(open_pool: OpenPool) -> None:
    assert owner_after(open_pool, (11, 33, DIGESTS[1], DIGESTS[3]), 0) == (
        "the page of seq 2 chunk 2 rank 0 layer 0 plane K block 0"
    )


def test_the_pages_of_another_sequence_are_named(open_pool: OpenPool) -> None:
    assert owner_after(open_pool, OTHER, 0) == (
        "the page of seq 1 chunk 0 rank 0 layer 0 plane K block 0"
    )


def test_the_pages_of_another_rank_are_named(open_pool: OpenPool) -> None:
    assert owner_after(open_pool, DIGESTS, 3) == (
        "the page of seq 2 chunk 0 rank 3 layer 0 plane K block 0"
    )


def test_permuted_layers_and_planes_are_named(open_pool: OpenPool) -> None:
    window = Window(first=3, count=8, block_ids=tuple(range(3, 11)), canaries=())
    with open_pool(CLASSIC) as (pool, segment):
        pool.fill(window, DIGESTS)
        first, second = layers_of(segment, CLASSIC)
        first[1] = second[0]
        seen = verify(pool, window, DIGESTS, PAST)
    assert seen.first is not None
    assert seen.first.owner == "the page of seq 2 chunk 0 rank 0 layer 1 plane K block 0"
    assert seen.first.place.layer == 0
    assert seen.first.place.plane == "V"


@pytest.mark.parametrize("text", SPECS)
def test_a_destination_that_nobody_wrote_is_untouched(open_pool: OpenPool, text: str) -> None:
    _, window = plan()
    with open_pool(text) as (pool, segment):
        pool.poison(window)
        seen = verify(pool, window, DIGESTS, PAST)
        assert seen.kind is EvidenceKind.UNTOUCHED
        assert seen.bad_pages == seen.pages
        assert seen.first is not None
        assert seen.first.owner == "poison: nothing was written"
        layers_of(segment, text)[0][0, window.block_ids[7], 0] = 0
        assert verify(pool, window, DIGESTS, PAST).kind is EvidenceKind.MISMATCH


def test_one_page_that_nobody_wrote_is_a_mismatch(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        for pages in layers_of(segment, CLASSIC):
            pages[1, window.block_ids[3]] = POISON_BYTE
        seen = verify(pool, window, DIGESTS, PAST)
    assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 2)
    assert seen.first is not None
    assert seen.first.owner == "poison: nothing was written"


def test_a_partly_written_page_is_told(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        page = layers_of(segment, CLASSIC)[1][1, window.block_ids[4]]
        page[8:] = POISON_BYTE
        # 0xE5 may be right in the low byte of an element, so the next byte can be the first.
        first = 8 if expected_page(parse_shape_spec(CLASSIC), 1, 1, 33, 0)[8] != POISON_BYTE else 9
        seen = verify(pool, window, DIGESTS, PAST)
    assert seen.first is not None
    assert seen.first.owner == f"poison from byte {first} on: partly written"
    assert seen.first.place.chunk == 2


# A RETRIEVE that skips


def restore_part(
    pool: HostPool, segment: SharedSegment, text: str, window: Window, skipped: int
) -> None:
    """Write what a good RETRIEVE leaves that skips the first blocks."""
    restore(pool, segment, text, window)
    for pages in layers_of(segment, text):
        pages[:, list(window.block_ids[:skipped])] = POISON_BYTE


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("skipped", range(1, 8))
def test_a_destination_restored_in_part(
    open_pool: OpenPool, text: str, which: int, skipped: int
) -> None:
    window = plan()[which]
    rows = sum(group.layers * planes(group) for group in parse_shape_spec(text).groups)
    with open_pool(text) as (pool, segment):
        restore_part(pool, segment, text, window, skipped)
        kept = verify_skipped(pool, window, PAST, skipped=skipped)
        rest = verify(pool, window, DIGESTS, PAST, skipped=skipped)
        whole = verify(pool, window, DIGESTS, PAST)
    assert (kept.kind, kept.pages, kept.first) == (EvidenceKind.MATCH, skipped * rows, None)
    assert (rest.kind, rest.pages, rest.first) == (EvidenceKind.MATCH, (8 - skipped) * rows, None)
    assert kept.checked_bytes + rest.checked_bytes == whole.checked_bytes
    assert (whole.kind, whole.bad_pages) == (EvidenceKind.MISMATCH, skipped * rows)


@settings(max_examples=100)
@given(data=st.data())
def test_any_byte_of_a_part_is_looked_at_once(open_pool: OpenPool, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SPECS))
    window = plan(data.draw(st.integers(0, 3)))[data.draw(st.integers(0, 1))]
    skipped, column = data.draw(st.integers(1, 7)), data.draw(st.integers(0, 7))
    with open_pool(text) as (pool, segment):
        restore_part(pool, segment, text, window, skipped)
        layers = layers_of(segment, text)
        layer = data.draw(st.integers(0, len(layers) - 1))
        plane = data.draw(st.integers(0, layers[layer].shape[0] - 1))
        offset = data.draw(st.integers(0, layers[layer].shape[2] - 1))
        layers[layer][plane, window.block_ids[column], offset] ^= data.draw(st.integers(1, 255))
        kept = verify_skipped(pool, window, PAST, skipped=skipped)
        rest = verify(pool, window, DIGESTS, PAST, skipped=skipped)
    bad, good = (kept, rest) if column < skipped else (rest, kept)
    assert (good.kind, good.bad_pages) == (EvidenceKind.MATCH, 0)
    assert (bad.kind, bad.bad_pages) == (EvidenceKind.MISMATCH, 1)
    assert bad.first is not None
    assert bad.first.place == PageOwner(
        label="",
        chunk=column // 2,
        rank=0,
        layer=layer,
        plane=plane_name(text, layer, plane),
        block=column % 2,
    )
    assert (bad.first.block_id, bad.first.offset) == (window.block_ids[column], offset)


def test_a_skipped_block_that_was_restored_says_whose_bytes_came(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        seen = verify_skipped(pool, window, PAST, skipped=3)
        right = expected_page(parse_shape_spec(CLASSIC), 0, 0, 11, 0)
    assert (seen.kind, seen.bad_pages, seen.pages) == (EvidenceKind.MISMATCH, 12, 12)
    assert seen.first is not None
    assert seen.first.owner == "the page of seq 2 chunk 0 rank 0 layer 0 plane K block 0"
    at = seen.first.offset
    assert seen.first.expected == bytes([POISON_BYTE]) * 8
    assert seen.first.seen == right[at : at + 8]


@pytest.mark.parametrize(("skipped", "kept", "rest"), [(0, False, True), (8, True, False)])
def test_a_part_without_a_page_is_no_evidence(
    open_pool: OpenPool, skipped: int, kept: bool, rest: bool
) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore_part(pool, segment, CLASSIC, window, skipped)
        looks: list[tuple[Callable[[], Evidence], bool]] = [
            (lambda: verify_skipped(pool, window, PAST, skipped=skipped), kept),
            (lambda: verify(pool, window, DIGESTS, PAST, skipped=skipped), rest),
        ]
        for look, fine in looks:
            if fine:
                assert look().kind is EvidenceKind.MATCH
            else:
                with pytest.raises(ValueError, match=f"{skipped} of 8 blocks skipped"):
                    look()


def test_zeros_are_told(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(ODD) as (pool, segment):
        restore(pool, segment, ODD, window)
        layers_of(segment, ODD)[0][0, window.block_ids[1]] = 0
        seen = verify(pool, window, DIGESTS, PAST)
    assert seen.first is not None
    assert seen.first.owner == "zeros"


# Canaries


@settings(max_examples=150)
@given(data=st.data())
def test_any_flipped_byte_beside_the_blocks_is_found(
    open_pool: OpenPool, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from(SPECS))
    _, window = plan(data.draw(st.integers(0, 3)))
    with open_pool(text) as (pool, segment):
        restore(pool, segment, text, window)
        layers = layers_of(segment, text)
        layer = data.draw(st.integers(0, len(layers) - 1))
        plane = data.draw(st.integers(0, layers[layer].shape[0] - 1))
        block_id = data.draw(st.sampled_from((0, *window.canaries)))
        offset = data.draw(st.integers(0, layers[layer].shape[2] - 1))
        layers[layer][plane, block_id, offset] ^= data.draw(st.integers(1, 255))
        seen = verify_canaries(pool, window)
        assert verify(pool, window, DIGESTS, PAST).kind is EvidenceKind.MATCH
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.bad_pages == 1
    fault = seen.first
    assert fault is not None
    assert (fault.place.layer, fault.place.plane) == (layer, plane_name(text, layer, plane))
    assert (fault.block_id, fault.offset, fault.place.chunk) == (block_id, offset, -1)
    assert fault.expected == bytes([CANARY_BYTE]) * len(fault.seen)
    assert fault.owner == "a block or guard that nobody may write"


@settings(max_examples=100)
@given(data=st.data())
def test_any_flipped_byte_of_a_guard_is_found(open_pool: OpenPool, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SPECS))
    _, window = plan()
    places, size = place_tensors(parse_shape_spec(text))
    starts = [0, *(place.offset + place.nbytes for place in places)]
    ends = [*(place.offset for place in places), size]
    guard = data.draw(st.integers(0, len(starts) - 1))
    length = ends[guard] - starts[guard]
    offset = data.draw(st.one_of(st.sampled_from((0, length - 1)), st.integers(0, length - 1)))
    with open_pool(text) as (pool, segment):
        pool.poison(window)
        memory = memory_of(segment)
        memory[starts[guard] + offset] ^= 0x01
        seen = verify_canaries(pool, window)
        del memory
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.first is not None
    assert (seen.first.block_id, seen.first.offset) == (-1, offset)
    assert seen.first.place.layer == max(0, guard - 1)
    assert seen.first.seen[0] == CANARY_BYTE ^ 1
