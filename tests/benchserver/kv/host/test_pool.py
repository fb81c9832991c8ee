"""A pool in real shared memory: what it writes, what it sees, and what it never touches."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import Window, plan_blocks
from benchserver.kv.evidence import EvidenceKind, PageOwner
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import GUARD_BYTES, TensorPlace, place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, group_patterns
from benchserver.kv.pool import shares
from benchserver.kv.verify import Candidate
from benchserver.shmnames import SHM_DIR, segment_name
from protocol.handles import CpuShmHandle, handle_from_wire, handle_to_wire
from shapespec import (
    ShapeSpec,
    chunk_bytes,
    layer_indices,
    page_bytes,
    parse_shape_spec,
    planes,
    tensor_bytes,
)

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]
U8 = npt.NDArray[np.uint8]

ROOT = bytes(range(16))  # the root of the content of `open_pool`
NAME = segment_name("00ff", 0)  # the name that `open_pool` gives
CHUNKS = 4
DIGESTS = (11, 22, 33, 44)
OTHER = (55, 66, 77, 88)
PAST = (Candidate(label="seq 1", digests=OTHER), Candidate(label="seq 2", digests=DIGESTS))

CLASSIC = "(2,24,2,1,4):float16:2"
MLA = "(1,24,2,1,8):bfloat16:3"
ODD = "(1,24,1,1,132):uint8:1"
TINY = "(2,24,1,1,3):int8:2"
MIXED = "(2,24,2,2,4):float32:1;(1,24,2,1,292):uint8:2"
SPECS = (CLASSIC, MLA, ODD, TINY, MIXED)


def plan(turn: int = 0) -> tuple[Window, Window]:
    """Return source and destination of four chunks of two blocks; one canary lies inside."""
    made = plan_blocks(num_blocks=24, request_blocks=2 * CHUNKS, seed=1, turn=turn, rank=0)
    assert len(made.destination.canaries) == 3
    return made.source, made.destination


def memory_of(segment: SharedSegment) -> U8:
    return np.frombuffer(segment.buffer, np.uint8)


def layers_of(segment: SharedSegment, text: str) -> list[U8]:
    """Return every layer as (planes, blocks, page bytes), found by place alone."""
    spec = parse_shape_spec(text)
    memory = memory_of(segment)
    return [
        memory[p.offset : p.offset + p.nbytes].reshape(
            planes(spec.groups[p.group]), 24, page_bytes(spec.groups[p.group])
        )
        for p in place_tensors(spec)[0]
    ]


def expected_page(
    spec: ShapeSpec, layer: int, plane: int, digest: int, block: int, rank: int = 0
) -> bytes:
    patterns = group_patterns(ROOT, spec)
    group = next(i for i, layers in enumerate(layer_indices(spec)) if layer in layers)
    keys = patterns[group].page_keys([digest], rank=rank, layer=layer, blocks_per_chunk=2)
    return patterns[group].expected_page(int(keys[plane, block])).tobytes()


# Places


def test_places_of_a_known_spec() -> None:
    # 2 planes x 24 blocks x 16 bytes, three tensors of 584-byte pages behind.
    spec = parse_shape_spec("(2,24,2,1,4):float16:1;(1,24,2,1,292):uint8:2")
    places, size = place_tensors(spec)
    assert places == (
        TensorPlace(layer=0, group=0, offset=4096, nbytes=768),
        TensorPlace(layer=1, group=1, offset=12288, nbytes=14016),
        TensorPlace(layer=2, group=1, offset=32768, nbytes=14016),
    )
    assert size == 53248


@pytest.mark.parametrize("text", SPECS)
def test_tensors_are_aligned_and_guarded(text: str) -> None:
    spec = parse_shape_spec(text)
    places, size = place_tensors(spec)
    assert [p.layer for p in places] == list(range(spec.num_layers))
    end = 0
    for place in places:
        assert place.nbytes == tensor_bytes(spec.groups[place.group])
        assert place.offset % 4096 == 0
        assert place.offset - end >= GUARD_BYTES
        end = place.offset + place.nbytes
    assert size - end >= GUARD_BYTES


def test_handles_describe_the_tensors(open_pool: OpenPool) -> None:
    with open_pool(MIXED) as (pool, segment):
        assert not (SHM_DIR / NAME).exists()
        with pool.exported() as handles:
            assert (SHM_DIR / NAME).stat().st_size == segment.nbytes
        assert not (SHM_DIR / NAME).exists()
    assert handles[0] == CpuShmHandle(
        shm_name=f"/{NAME}",
        nbytes=segment.nbytes,
        dtype="float32",
        shape=(2, 24, 2, 2, 4),
        stride=(384, 16, 8, 4, 1),
        storage_offset=1024,
    )
    assert handles[1].shape == (24, 2, 292)
    assert handles[1].stride == (584, 292, 1)
    places, _ = place_tensors(parse_shape_spec(MIXED))
    assert [h.storage_offset for h in handles] == [1024, places[1].offset, places[2].offset]
    assert [handle_from_wire(handle_to_wire(handle)) for handle in handles] == list(handles)


def test_an_export_that_fails_leaves_no_name(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, _):
        with pytest.raises(FileExistsError), pool.exported():
            (SHM_DIR / NAME).touch(exist_ok=False)
        assert not (SHM_DIR / NAME).exists()


def test_release_frees_the_memory_and_takes_the_name_away(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, segment), pool.exported():
        pool.release()
        assert not (SHM_DIR / NAME).exists()
        assert not memory_of(segment).any()


def test_on_the_host_nothing_is_waited_for(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, _):
        assert pool.asynchronous is False
        assert pool.record_event() == b"stub_ipc_handle"
        for answered in (b"", b"stub_ipc_handle", bytes(64)):
            pool.wait_event(answered, timeout_ns=0)


# Writing


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("which", [0, 1])
def test_fill_writes_each_page_in_table_order(open_pool: OpenPool, text: str, which: int) -> None:
    spec = parse_shape_spec(text)
    window = Window(first=3, count=8, block_ids=(7, 3, 10, 5, 4, 9, 6, 8), canaries=())
    with open_pool(text) as (pool, segment):
        pool.fill(window, DIGESTS)
        for layer, pages in enumerate(layers_of(segment, text)):
            for plane in range(pages.shape[0]):
                for column, block_id in enumerate(window.block_ids):
                    chunk, block = divmod(column, 2)
                    assert pages[plane, block_id].tobytes() == expected_page(
                        spec, layer, plane, DIGESTS[chunk], block
                    )
        assert pool.verify(window, DIGESTS, ()).kind is EvidenceKind.MATCH


@pytest.mark.parametrize("text", SPECS)
def test_nothing_beside_the_window_is_written(open_pool: OpenPool, text: str) -> None:
    source, destination = plan()
    for window in (source, destination):
        with open_pool(text) as (pool, segment):
            memory = memory_of(segment)
            inside = np.zeros(memory.size, bool)
            memory[:] = np.arange(memory.size) % 251
            before = memory.copy()
            (pool.fill(window, DIGESTS) if window is source else pool.poison(window))
            for place, pages in zip(
                place_tensors(parse_shape_spec(text))[0], layers_of(segment, text), strict=True
            ):
                mask = np.zeros(pages.shape, bool)
                mask[:, window.first : window.first + window.count] = True
                inside[place.offset : place.offset + place.nbytes] = mask.reshape(-1)
            assert (memory == before)[~inside].all()
            assert not (memory == before)[inside].all()
            del memory


def test_poison_and_canaries(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(MIXED) as (pool, segment):
        pool.poison(window)
        for pages in layers_of(segment, MIXED):
            assert (pages[:, list(window.block_ids)] == POISON_BYTE).all()
            assert (pages[:, list(window.canaries)] == CANARY_BYTE).all()
            assert (pages[:, 0] == CANARY_BYTE).all()


# Seeing


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("text", SPECS)
def test_shares_make_a_whole(open_pool: OpenPool, text: str, count: int) -> None:
    source, destination = plan()
    with open_pool(text) as (pool, segment):
        pool.fill(source, DIGESTS)
        pool.poison(destination)
        whole = memory_of(segment).tobytes()
    with open_pool(text) as (pool, segment):
        for share in shares(count):
            pool.fill(source, DIGESTS, share)
            pool.poison(destination, share)
        assert memory_of(segment).tobytes() == whole


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
        seen = pool.verify(window, DIGESTS, PAST)
        assert seen.kind is EvidenceKind.MATCH
        assert seen.first is None
        assert seen.pages == 8 * sum(group.layers * planes(group) for group in spec.groups)
        assert seen.checked_bytes == CHUNKS * chunk_bytes(spec, 2 * spec.block_size)
        assert pool.verify_canaries(window).kind is EvidenceKind.MATCH


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
        seen = pool.verify(window, DIGESTS, PAST)
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.bad_pages == 1
    fault = seen.first
    assert fault is not None
    assert fault.place == PageOwner(
        label="", chunk=column // 2, rank=0, layer=layer, plane=plane, block=column % 2
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
        fault = pool.verify(window, DIGESTS, ()).first
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
        seen = pool.verify(window, DIGESTS, ())
    assert seen.bad_pages == 3
    assert seen.first is not None
    assert (seen.first.place.plane, seen.first.place.chunk, seen.first.place.block) == (1, 1, 0)


def owner_after(open_pool: OpenPool, digests: tuple[int, ...], rank: int) -> str:
    """Fill a destination with other content, as a confused server would; say whose it is."""
    window = Window(first=3, count=8, block_ids=tuple(range(3, 11)), canaries=())
    with open_pool(CLASSIC, content_rank=rank, ranks=4) as (other, theirs):
        other.fill(window, digests)
        content = [pages.copy() for pages in layers_of(theirs, CLASSIC)]
    with open_pool(CLASSIC, ranks=4) as (pool, segment):
        for pages, copied in zip(layers_of(segment, CLASSIC), content, strict=True):
            pages[:] = copied
        seen = pool.verify(window, DIGESTS, PAST)
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.first is not None
    return seen.first.owner


def test_swapped_chunks_name_each_other(open_pool: OpenPool) -> None:
    assert owner_after(open_pool, (11, 33, 22, 44), 0) == (
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
        seen = pool.verify(window, DIGESTS, PAST)
    assert seen.first is not None
    assert seen.first.owner == "the page of seq 2 chunk 0 rank 0 layer 1 plane K block 0"
    assert seen.first.place.layer == 0
    assert seen.first.place.plane == 1


@pytest.mark.parametrize("text", SPECS)
def test_a_destination_that_nobody_wrote_is_untouched(open_pool: OpenPool, text: str) -> None:
    _, window = plan()
    with open_pool(text) as (pool, segment):
        pool.poison(window)
        seen = pool.verify(window, DIGESTS, PAST)
        assert seen.kind is EvidenceKind.UNTOUCHED
        assert seen.bad_pages == seen.pages
        assert seen.first is not None
        assert seen.first.owner == "poison: nothing was written"
        layers_of(segment, text)[0][0, window.block_ids[7], 0] = 0
        assert pool.verify(window, DIGESTS, PAST).kind is EvidenceKind.MISMATCH


def test_one_page_that_nobody_wrote_is_a_mismatch(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        for pages in layers_of(segment, CLASSIC):
            pages[1, window.block_ids[3]] = POISON_BYTE
        seen = pool.verify(window, DIGESTS, PAST)
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
        seen = pool.verify(window, DIGESTS, PAST)
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
        kept = pool.verify_skipped(window, DIGESTS, PAST, skipped=skipped)
        rest = pool.verify(window, DIGESTS, PAST, skipped=skipped)
        whole = pool.verify(window, DIGESTS, PAST)
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
        kept = pool.verify_skipped(window, DIGESTS, PAST, skipped=skipped)
        rest = pool.verify(window, DIGESTS, PAST, skipped=skipped)
    bad, good = (kept, rest) if column < skipped else (rest, kept)
    assert (good.kind, good.bad_pages) == (EvidenceKind.MATCH, 0)
    assert (bad.kind, bad.bad_pages) == (EvidenceKind.MISMATCH, 1)
    assert bad.first is not None
    assert bad.first.place == PageOwner(
        label="", chunk=column // 2, rank=0, layer=layer, plane=plane, block=column % 2
    )
    assert (bad.first.block_id, bad.first.offset) == (window.block_ids[column], offset)


def test_a_skipped_block_that_was_restored_says_whose_bytes_came(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(CLASSIC) as (pool, segment):
        restore(pool, segment, CLASSIC, window)
        seen = pool.verify_skipped(window, DIGESTS, PAST, skipped=3)
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
        for look, fine in ((pool.verify_skipped, kept), (pool.verify, rest)):
            if fine:
                assert look(window, DIGESTS, PAST, skipped=skipped).kind is EvidenceKind.MATCH
            else:
                with pytest.raises(ValueError, match=f"{skipped} of 8 blocks skipped"):
                    look(window, DIGESTS, PAST, skipped=skipped)


def test_zeros_are_told(open_pool: OpenPool) -> None:
    _, window = plan()
    with open_pool(ODD) as (pool, segment):
        restore(pool, segment, ODD, window)
        layers_of(segment, ODD)[0][0, window.block_ids[1]] = 0
        seen = pool.verify(window, DIGESTS, PAST)
    assert seen.first is not None
    assert seen.first.owner == "zeros"


def test_content_is_of_the_ranks_kv_rank(open_pool: OpenPool) -> None:
    window = Window(first=1, count=2, block_ids=(1, 2), canaries=())
    with open_pool(CLASSIC, content_rank=3, ranks=4) as (pool, segment):
        pool.fill(window, DIGESTS[:1])
        page = layers_of(segment, CLASSIC)[1][0, 2].tobytes()
        assert page == expected_page(parse_shape_spec(CLASSIC), 1, 0, DIGESTS[0], 1, rank=3)


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
        seen = pool.verify_canaries(window)
        assert pool.verify(window, DIGESTS, PAST).kind is EvidenceKind.MATCH
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.bad_pages == 1
    fault = seen.first
    assert fault is not None
    assert (fault.place.layer, fault.place.plane) == (layer, plane)
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
        seen = pool.verify_canaries(window)
        del memory
    assert seen.kind is EvidenceKind.MISMATCH
    assert seen.first is not None
    assert (seen.first.block_id, seen.first.offset) == (-1, offset)
    assert seen.first.place.layer == max(0, guard - 1)
    assert seen.first.seen[0] == CANARY_BYTE ^ 1


# Chunks


@pytest.mark.parametrize("text", SPECS)
def test_a_chunk_is_laid_out_by_plane_layer_token_and_hidden(
    open_pool: OpenPool, text: str
) -> None:
    spec = parse_shape_spec(text)
    source, destination = plan()
    table = tuple(sorted(source.block_ids[2:4]))
    target = tuple(sorted(destination.block_ids[6:8], reverse=True))
    with open_pool(text) as (pool, segment):
        pool.fill(source, DIGESTS)
        pool.poison(destination)
        layers = layers_of(segment, text)
        for index, group in enumerate(spec.groups):
            mine = [layers[layer] for layer in layer_indices(spec)[index]]
            plain = b"".join(
                pages[plane, block].tobytes()
                for plane in range(planes(group))
                for pages in mine
                for block in table
            )
            chunk = np.empty(len(plain), np.uint8)
            pool.gather_chunk(index, table, chunk)
            assert chunk.tobytes() == plain
            before = [pages.copy() for pages in mine]
            pool.scatter_chunk(index, target, chunk)
            for pages, was in zip(mine, before, strict=True):
                was[:, target] = was[:, table]
                assert (pages == was).all()


def test_a_chunk_of_another_size_is_refused(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, _):
        with pytest.raises(ValueError, match="reshape"):
            pool.scatter_chunk(0, (1, 2), np.zeros(127, np.uint8))
        with pytest.raises(ValueError, match="reshape"):
            pool.gather_chunk(0, (1, 2), np.zeros(129, np.uint8))


@pytest.mark.parametrize("text", SPECS)
def test_digests_of_chunks(open_pool: OpenPool, text: str) -> None:
    spec = parse_shape_spec(text)
    source, _ = plan()
    with open_pool(text) as (pool, segment):
        pool.fill(source, DIGESTS)
        md5 = hashlib.md5()
        for place, pages in zip(place_tensors(spec)[0], layers_of(segment, text), strict=True):
            raw = b"".join(
                pages[plane, block].tobytes()
                for plane in range(pages.shape[0])
                for block in source.block_ids[4:6]
            )
            if spec.groups[place.group].dtype.name == "bfloat16":
                raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
            md5.update(raw)
        assert pool.chunk_digest(source.block_ids[4:6]) == md5.hexdigest()


# Ending


def test_cancel_ends_every_method(open_pool: OpenPool) -> None:
    source, destination = plan()
    cancel = threading.Event()
    with open_pool(CLASSIC, cancel=cancel) as (pool, _):
        cancel.set()
        works: list[Callable[[], object]] = [
            lambda: pool.fill(source, DIGESTS),
            lambda: pool.poison(destination),
            lambda: pool.verify(destination, DIGESTS, ()),
            lambda: pool.verify_canaries(destination),
            lambda: pool.verify_skipped(destination, DIGESTS, (), skipped=1),
            lambda: pool.chunk_digest((1, 2)),
        ]
        for work in works:
            with pytest.raises(WorkCancelledError):
                work()


@pytest.mark.usefixtures("leak_free")
def test_close_gives_the_memory_back(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, segment):
        pool.poison(plan()[1])
    with pytest.raises(ValueError, match="mmap closed"):
        _ = segment.buffer
