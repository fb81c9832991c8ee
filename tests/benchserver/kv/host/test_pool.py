"""A pool in real shared memory: how it is named, what it writes, and how it ends."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import Window
from benchserver.kv.evidence import Evidence, EvidenceKind
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE
from benchserver.kv.pool import shares
from benchserver.kv.verify import verify, verify_canaries, verify_skipped
from benchserver.shmnames import SHM_DIR, segment_name
from protocol.handles import CpuShmHandle, handle_from_wire, handle_to_wire
from shapespec import (
    layer_indices,
    parse_shape_spec,
    planes,
)
from tests import pools
from tests.pools import CLASSIC, DIGESTS, U8, expected_page, plan

OpenPool = Callable[..., AbstractContextManager[tuple[HostPool, SharedSegment]]]

NAME = segment_name("00ff", 0)  # the name that `open_pool` gives

MLA = "(1,24,2,1,8):bfloat16:3"
ODD = "(1,24,1,1,132):uint8:1"
TINY = "(2,24,1,1,3):int8:2"
MIXED = "(2,24,2,2,4):float32:1;(1,24,2,1,292):uint8:2"
SPECS = (CLASSIC, MLA, ODD, TINY, MIXED)


def memory_of(segment: SharedSegment) -> U8:
    return np.frombuffer(segment.buffer, np.uint8)


def layers_of(segment: SharedSegment, text: str) -> list[U8]:
    return pools.layers_of(memory_of(segment), text)


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
        assert verify(pool, window, DIGESTS, ()).kind is EvidenceKind.MATCH


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


def test_content_is_of_the_ranks_kv_rank(open_pool: OpenPool) -> None:
    window = Window(first=1, count=2, block_ids=(1, 2), canaries=())
    with open_pool(CLASSIC, content_rank=3, ranks=4) as (pool, segment):
        pool.fill(window, DIGESTS[:1])
        page = layers_of(segment, CLASSIC)[1][0, 2].tobytes()
        assert page == expected_page(parse_shape_spec(CLASSIC), 1, 0, DIGESTS[0], 1, rank=3)


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
            lambda: verify(pool, destination, DIGESTS, ()),
            lambda: verify_canaries(pool, destination),
            lambda: verify_skipped(pool, destination, (), skipped=1),
            lambda: pool.chunk_digest((1, 2)),
        ]
        for work in works:
            with pytest.raises(WorkCancelledError):
                work()


def test_a_closed_pool_proves_nothing(open_pool: OpenPool) -> None:
    source, _ = plan()
    with open_pool(CLASSIC) as (pool, _):
        pool.fill(source, DIGESTS)
        assert verify(pool, source, DIGESTS, ()).kind is EvidenceKind.MATCH
        pool.close()
        looks: list[Callable[[], Evidence]] = [
            lambda: verify(pool, source, DIGESTS, ()),
            lambda: verify_canaries(pool, source),
            lambda: verify_skipped(pool, source, (), skipped=1),
        ]
        for look in looks:
            with pytest.raises(ValueError, match="zip"):
                look()


@pytest.mark.usefixtures("leak_free")
def test_close_gives_the_memory_back(open_pool: OpenPool) -> None:
    with open_pool(CLASSIC) as (pool, segment):
        pool.poison(plan()[1])
    with pytest.raises(ValueError, match="mmap closed"):
        _ = segment.buffer
