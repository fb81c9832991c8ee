"""How chunks are cut into slices, and that they come through them whole."""

from __future__ import annotations

import hashlib
import threading
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.kv.gpu import lanes
from benchserver.kv.gpu.chunks import Slices, hashed_bytes, is_widened, lane_bytes
from benchserver.kv.gpu.lanes import Lanes
from benchserver.kv.gpu.views import GroupView
from shapespec import parse_shape_spec
from tests.pools import DIGESTS, SPECS, open_host, open_on_cpu, plan


def views_of(text: str) -> list[GroupView]:
    return [
        GroupView(index=i, spec=group, layers=range(group.layers), pages=None, guards=None)
        for i, group in enumerate(parse_shape_spec(text).groups)
    ]


@given(
    outer=st.integers(1, 5),
    inner=st.integers(1, 5),
    blocks=st.integers(1, 6),
    page=st.integers(1, 9),
    limit=st.integers(1, 400),
)
def test_slices_are_everything_in_order_and_within_the_limit(
    outer: int, inner: int, blocks: int, page: int, limit: int
) -> None:
    array = np.arange(outer * inner * blocks).reshape(outer, inner, blocks)
    slices = Slices(outer=outer, inner=inner, blocks=blocks, page_bytes=page, limit=limit)
    pieces = [array[box].reshape(-1) for box in slices.boxes()]
    assert np.concatenate(pieces).tolist() == list(range(array.size))
    for piece in pieces:
        assert piece.size * page <= max(limit, page)
    if array.size * page <= limit:
        assert len(pieces) == 1


def test_a_large_chunk_is_cut_into_few_slices() -> None:
    # 32 layers x 2 planes x 16 blocks of 32 KiB: a chunk of 32 MiB is one slice.
    slices = Slices(outer=32, inner=2, blocks=16, page_bytes=32 << 10, limit=32 << 20)
    assert len(list(slices.boxes())) == 1
    slices = Slices(outer=32, inner=2, blocks=32, page_bytes=32 << 10, limit=32 << 20)
    assert [box[0] for box in slices.boxes()] == [slice(0, 16), slice(16, 32)]


def test_pinned_memory_is_what_a_chunk_needs_and_bounded() -> None:
    assert lane_bytes(views_of("(2,64,16,8,128):float16:32"), 16) == 32 << 20
    assert lane_bytes(views_of("(2,64,16,8,128):float16:2"), 16) == 2 << 20
    # bfloat16 is widened; the largest of the groups counts.
    assert lane_bytes(views_of("(1,64,16,1,8):uint8:1;(2,64,16,8,128):bfloat16:2"), 16) == 4 << 20
    assert lane_bytes(views_of("(2,64,16,8,128):float16:80"), 16) == lanes.SLICE_BYTES
    # One page of 64 MiB, and a widened one.
    assert lane_bytes(views_of("(1,8,1024,32,2048):uint8:1"), 1) == 64 << 20
    assert lane_bytes(views_of("(1,8,1024,16,1024):bfloat16:1"), 1) == 64 << 20


def test_bfloat16_alone_is_widened() -> None:
    views = views_of("(2,8,1,1,4):float16:1;(2,8,1,1,4):bfloat16:1;(2,8,1,1,4):uint8:1")
    assert [is_widened(view) for view in views] == [False, True, False]
    assert [hashed_bytes(view, 10) for view in views] == [10, 20, 10]


@pytest.mark.torch
@pytest.mark.parametrize("limit", [1, 100, 20_000])
@pytest.mark.parametrize("text", SPECS)
def test_chunks_in_many_slices(monkeypatch: pytest.MonkeyPatch, text: str, limit: int) -> None:
    monkeypatch.setattr(lanes, "SLICE_BYTES", limit)
    source, destination = plan()
    table, target = source.block_ids[2:4], destination.block_ids[:2]
    with open_on_cpu(text) as tested, open_host(text) as host:
        for pool in (tested, host):
            pool.pool.fill(source, DIGESTS)
            pool.pool.poison(destination)
        background = host.read()
        tested.write(background)
        assert tested.pool.chunk_digest(table) == host.pool.chunk_digest(table)
        for group, spec in enumerate(parse_shape_spec(text).groups):
            size = (
                spec.layers
                * spec.kv_size
                * 2
                * (spec.block_size * spec.num_heads * spec.head_size * spec.dtype.item_bytes)
            )
            ours, theirs = np.empty(size, np.uint8), np.empty(size, np.uint8)
            tested.pool.gather_chunk(group, table, ours)
            host.pool.gather_chunk(group, table, theirs)
            assert ours.tobytes() == theirs.tobytes()
            tested.pool.scatter_chunk(group, target, ours)
            host.pool.scatter_chunk(group, target, theirs)
        assert tested.read().tobytes() == host.read().tobytes()


@pytest.mark.torch
def test_an_object_that_is_not_contiguous_is_refused() -> None:
    with open_on_cpu(SPECS[0]) as tested, pytest.raises(ValueError, match="not contiguous"):
        tested.pool.gather_chunk(0, (1, 2), np.zeros((2, 64), np.uint8).T)


@pytest.mark.torch
def test_a_cancelled_digest_ends_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchserver.errors import WorkCancelledError
    from benchserver.kv.gpu.pool import CudaPool

    monkeypatch.setattr(lanes, "SLICE_BYTES", 64)
    cancel = threading.Event()
    with open_on_cpu(SPECS[0], cancel=cancel) as tested:
        assert isinstance(tested.pool, CudaPool)
        slices = tested.pool.hashed_slices((1, 2))
        assert next(slices).size == 64
        cancel.set()
        with pytest.raises(WorkCancelledError):
            next(slices)


@pytest.mark.torch
def test_pools_that_share_lanes_do_not_mix_their_chunks() -> None:
    from benchserver.kv.gpu.pool import CudaPool

    source, _ = plan()
    with open_on_cpu(SPECS[0]) as first, open_on_cpu(SPECS[0], content_rank=1, ranks=2) as second:
        pools = [tested.pool for tested in (first, second)]
        lanes = Lanes(2)
        digests = []
        for pool in pools:
            pool.fill(source, DIGESTS)
            digests.append(pool.chunk_digest(source.block_ids[:2]))
            assert isinstance(pool, CudaPool)
            pool._chunks._lanes = lanes
        slices = [pool.hashed_slices(source.block_ids[:2]) for pool in cast(list[CudaPool], pools)]
        seen = [hashlib.md5(next(part).tobytes()).hexdigest() for part in slices]
        assert seen == digests
        assert seen[0] != seen[1]
