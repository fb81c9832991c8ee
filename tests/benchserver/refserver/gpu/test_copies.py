"""Copies of GPU pages, on CPU tensors, against the numpy ones of `transfer`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from benchserver.refserver.gpu.copies import (
    GroupPages,
    bytes_of_blocks,
    cut_into_batches,
    group_pages,
    read_blocks,
    retrieve_batch,
    staging_bytes,
    store_batch,
    write_blocks,
)
from benchserver.refserver.gpu.copies import paged_view as torch_paged_view
from benchserver.refserver.gpu.work import CudaHashedLayer
from benchserver.refserver.pages.checksums import (
    HashedLayer,
    aggregate_digests,
    layerwise_digests,
)
from benchserver.refserver.pages.layout import KvLayout, layout_of
from benchserver.refserver.pages.transfer import (
    ObjectCopy,
    paged_view,
    retrieve_objects,
    store_objects,
    tensor_over,
    word_of,
)
from protocol.handles import CpuShmHandle, CudaHandle
from tests.cudastage import cuda_handle, torch_tensors

CHUNK = 8
NO_HINTS: Mapping[str, str] = MappingProxyType({})
HND = {"kv_layout": "HND"}


def handles_of(
    shape: tuple[int, ...], dtype: str, layers: int, gap: int, first: int = 0
) -> list[CudaHandle]:
    """Return descriptors of layers in one storage, `gap` elements behind each other."""
    step = int(np.prod(shape)) + gap
    items = first + step * layers
    nbytes = items * np.dtype(word_of(dtype)).itemsize
    return [
        cuda_handle(shape, dtype, offset=first + step * layer, storage_bytes=nbytes)
        for layer in range(layers)
    ]


class Twins:
    """The same random memory twice: as numpy sees it, and as torch does."""

    def __init__(
        self,
        handles: Sequence[CudaHandle],
        seed: int,
        *,
        hints: Mapping[str, str] = NO_HINTS,
        infos: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.layout: KvLayout = layout_of(
            handles, hints, infos, engine_type="vllm", chunk_size=CHUNK
        )
        size = max(handle.nbytes for handle in handles)
        self.memory = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
        self.other = self.memory.copy()
        on_host = [
            CpuShmHandle(
                shm_name="s",
                nbytes=h.nbytes,
                dtype=h.dtype,
                shape=h.shape,
                stride=h.stride,
                storage_offset=h.storage_offset,
            )
            for h in handles
        ]
        self.arrays = [tensor_over(self.memory, handle) for handle in on_host]
        self.tensors = torch_tensors(self.other, handles)
        self.pages = [group_pages(self.tensors, group) for group in self.layout.groups]
        self.views = list(self.arrays)
        for group in self.layout.groups:
            for layer in group.layers:
                self.views[layer] = paged_view(self.arrays[layer], group.geometry)

    def objects(self, picks: Sequence[tuple[int, tuple[int, ...], int]]) -> list[ObjectCopy]:
        """Return copies of random objects: (group, block ids, skipped blocks) each."""
        rng = np.random.default_rng(9)
        sizes = self.layout.group_bytes
        return [
            ObjectCopy(
                group=group,
                data=rng.integers(0, 256, sizes[group], dtype=np.uint8),
                block_ids=ids,
                skip_blocks=skip,
            )
            for group, ids, skip in picks
        ]

    def move(self, move: Any, copies: Sequence[ObjectCopy], batch_bytes: int = 1 << 20) -> int:
        """Move objects as on a GPU, and return in how many batches."""
        import torch

        batches, table = cut_into_batches(self.layout, copies, batch_bytes)
        staging = torch.zeros(staging_bytes(batches), dtype=torch.uint8)
        for batch in batches:
            move(self.pages[batch.group], batch, torch.from_numpy(table), staging)
        return len(batches)


FORMATS: dict[str, tuple[tuple[int, ...], str, Mapping[str, str]]] = {
    "classical": ((2, 6, 4, 3, 8), "float16", NO_HINTS),
    "classical, odd": ((2, 6, 4, 3, 5), "float16", NO_HINTS),
    "classical, one byte": ((2, 6, 4, 1, 3), "int8", NO_HINTS),
    "classical HND": ((2, 6, 3, 4, 8), "bfloat16", HND),
    "classical HND, odd": ((2, 6, 3, 4, 5), "bfloat16", HND),
    "one head": ((2, 6, 4, 1, 1), "float32", NO_HINTS),
    "blocks first": ((6, 2, 4, 3, 4), "float32", NO_HINTS),
    "blocks first HND": ((6, 2, 3, 4, 5), "uint8", HND),
    "fused": ((6, 4, 3, 8), "float16", NO_HINTS),
    "fused HND": ((6, 3, 4, 8), "bfloat16", HND),
    "fp8": ((2, 6, 4, 3, 4), "float8_e4m3fn", NO_HINTS),
    "MLA": ((6, 4, 8), "bfloat16", NO_HINTS),
    "MLA, odd": ((6, 4, 7), "float16", NO_HINTS),
}
GAPS = {"none": 0, "a page": 96, "odd": 3}


@pytest.fixture(params=[(name, gap) for name in FORMATS for gap in GAPS], ids=str)
def twins(request: pytest.FixtureRequest) -> Twins:
    name, gap = request.param
    shape, dtype, hints = FORMATS[name]
    return Twins(handles_of(shape, dtype, 3, GAPS[gap], first=GAPS[gap]), 1, hints=hints)


PICKS = [(0, (4, 1), 0), (0, (5, 0), 0), (0, (2, 3), 0)]


@pytest.mark.torch
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_stored_objects_are_those_of_numpy(twins: Twins, batch_bytes: int) -> None:
    wanted, found = twins.objects(PICKS), twins.objects(PICKS)
    store_objects(twins.layout, twins.views, wanted)
    batches = twins.move(store_batch, found, batch_bytes)
    assert batches == (len(PICKS) if batch_bytes == 1 else 1)
    assert [c.data.tobytes() for c in found] == [c.data.tobytes() for c in wanted]
    assert np.array_equal(twins.memory, twins.other)


@pytest.mark.torch
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
@pytest.mark.parametrize("skips", [(0, 0, 0), (2, 1, 0), (2, 2, 2)])
def test_retrieved_pages_are_those_of_numpy(
    twins: Twins, batch_bytes: int, skips: tuple[int, ...]
) -> None:
    picks = [(group, ids, skip) for (group, ids, _), skip in zip(PICKS, skips, strict=True)]
    before = twins.memory.copy()
    retrieve_objects(twins.layout, twins.views, twins.objects(picks))
    twins.move(retrieve_batch, twins.objects(picks), batch_bytes)
    assert np.array_equal(twins.memory, twins.other)
    assert np.array_equal(twins.memory, before) == (min(skips) == 2)


@pytest.mark.torch
def test_groups_are_moved_each_by_its_own_blocks() -> None:
    storage_bytes = 8192
    handles = [
        cuda_handle((6, 4, 8), "bfloat16", offset=8, storage_bytes=storage_bytes),
        cuda_handle((2, 5, 2, 1, 3), "float32", offset=512, storage_bytes=storage_bytes),
        cuda_handle((6, 4, 8), "bfloat16", offset=2000, storage_bytes=storage_bytes),
    ]
    infos: list[Mapping[str, Any]] = [
        {"engine_group_id": 0, "layer_indices": [0, 2], "tokens_per_block": 4},
        {"engine_group_id": 1, "layer_indices": [1], "tokens_per_block": 2},
    ]
    twins = Twins(handles, 3, infos=infos)
    picks = [(1, (1, 2, 3, 4), 0), (0, (5, 0), 1), (1, (0, 2, 1, 4), 3), (0, (3, 2), 0)]
    whole = [(group, ids, 0) for group, ids, _ in picks]
    wanted, found = twins.objects(whole), twins.objects(whole)
    store_objects(twins.layout, twins.views, wanted)
    twins.move(store_batch, found)
    assert [c.data.tobytes() for c in found] == [c.data.tobytes() for c in wanted]
    retrieve_objects(twins.layout, twins.views, twins.objects(picks))
    twins.move(retrieve_batch, twins.objects(picks))
    assert np.array_equal(twins.memory, twins.other)


def shapes(pages: GroupPages) -> list[tuple[int, ...]]:
    return [tuple(part.shape) for _, part in pages.parts]


@pytest.mark.torch
def test_layers_at_equal_distances_are_one_tensor_of_wide_words() -> None:
    import torch

    twins = Twins(handles_of((2, 6, 4, 3, 8), "float16", 3, 96, first=8), 1)
    (pages,) = twins.pages
    assert shapes(pages) == [(3, 2, 6, 4 * 3 * 8 * 2 // 8)]
    assert pages.word == torch.int64
    assert pages.object_shape == (2, 3, 2, 24)


@pytest.mark.torch
def test_layers_at_other_distances_are_moved_one_by_one() -> None:
    offsets = [0, 2000, 1000]
    handles = [
        cuda_handle((2, 6, 4, 3, 5), "float16", offset=o, storage_bytes=8192) for o in offsets
    ]
    twins = Twins(handles, 1)
    (pages,) = twins.pages
    assert shapes(pages) == [(1, 2, 6, 60 * 2 // 8)] * 3
    wanted, found = twins.objects(PICKS), twins.objects(PICKS)
    store_objects(twins.layout, twins.views, wanted)
    twins.move(store_batch, found)
    assert [c.data.tobytes() for c in found] == [c.data.tobytes() for c in wanted]


@pytest.mark.torch
def test_words_are_wide_only_where_every_page_allows_it() -> None:
    import torch

    odd = Twins(handles_of((2, 6, 4, 3, 5), "uint8", 2, 0), 1)
    assert odd.pages[0].word == torch.uint8
    shifted = Twins(handles_of((2, 6, 4, 3, 8), "float16", 2, 0, first=1), 1)
    assert shifted.pages[0].word == torch.int16


@pytest.mark.torch
def test_a_group_has_the_blocks_that_all_its_layers_have() -> None:
    handles = [
        cuda_handle((2, blocks, 4, 1, 8), "float16", offset=o, storage_bytes=8192)
        for blocks, o in ((7, 0), (5, 1024), (6, 2048))
    ]
    twins = Twins(handles, 1)
    assert twins.layout.groups[0].num_blocks == 5
    picks = [(0, (4, 0), 0)]
    wanted, found = twins.objects(picks), twins.objects(picks)
    store_objects(twins.layout, twins.views, wanted)
    twins.move(store_batch, found)
    assert found[0].data.tobytes() == wanted[0].data.tobytes()


@pytest.mark.torch
def test_single_blocks_are_read_and_written(twins: Twins) -> None:
    geometry = twins.layout.groups[0].geometry
    view = torch_paged_view(twins.tensors[1], geometry)
    read = read_blocks(view, (3, 0), word_of(geometry.dtype))
    assert read.dtype == twins.views[1].dtype
    assert np.array_equal(read, twins.views[1][:, [3, 0]])
    changed = ~read[:, ::-1]
    write_blocks(view, (3, 0), changed)
    twins.views[1][:, [3, 0]] = changed
    assert np.array_equal(twins.memory, twins.other)
    read[...] = 0
    assert np.array_equal(twins.memory, twins.other)


@pytest.mark.torch
def test_digests_are_those_of_host_memory(twins: Twins) -> None:
    columns = zip(twins.layout.formats, twins.arrays, twins.tensors, strict=True)
    dtype = twins.layout.groups[0].geometry.dtype
    host, device = [], []
    for form, array, tensor in columns:
        host.append(HashedLayer(tensor=array, form=form, dtype=dtype))
        device.append(CudaHashedLayer(tensor=tensor, form=form, dtype=dtype))
    ids = [4, 1, 1, 5, 0]
    assert aggregate_digests(device, ids, 2) == aggregate_digests(host, ids, 2)
    assert layerwise_digests(device, ids, 2) == layerwise_digests(host, ids, 2)
    assert [layer.num_blocks for layer in device] == [layer.num_blocks for layer in host]
    assert {layer.num_blocks for layer in device} == {6}


@pytest.mark.torch
def test_bfloat16_is_hashed_as_float32() -> None:
    import torch

    nan = np.array([0x7FC1, 0xFF80, 0x3F80], dtype=np.uint16).view(np.int16).reshape(1, 1, 3)
    data = bytes_of_blocks(torch.from_numpy(nan), [0], axis=0, widened=True)
    assert bytes(data) == bytes.fromhex("0000c17f000080ff0000803f")
    assert hashlib.md5(data).hexdigest() == hashlib.md5(bytes(data)).hexdigest()


def copies(layout: KvLayout, picks: Sequence[tuple[int, int]]) -> list[ObjectCopy]:
    data = [np.zeros(nbytes, dtype=np.uint8) for nbytes in layout.group_bytes]
    return [
        ObjectCopy(group=group, data=data[group], block_ids=(i, i + 1), skip_blocks=skip)
        for i, (group, skip) in enumerate(picks)
    ]


def test_a_transfer_is_cut_by_group_skip_and_size() -> None:
    handles = [cuda_handle((6, 4, 8)), cuda_handle((2, 6, 4, 1, 8))]
    layout = layout_of(handles, {}, [], engine_type="vllm", chunk_size=CHUNK)
    small, large = layout.group_bytes
    assert (small, large) == (128, 256)
    picks = [(1, 0), (0, 0), (0, 2), (1, 1), (0, 0), (1, 0), (0, 0)]
    batches, ids = cut_into_batches(layout, copies(layout, picks), 256)
    found = [(b.group, b.skip_blocks, len(b.copies), ids[b.ids].tolist()) for b in batches]
    assert found == [
        (0, 0, 2, [1, 2, 4, 5]),
        (0, 0, 1, [6, 7]),
        (1, 0, 1, [0, 1]),
        (1, 0, 1, [5, 6]),
        (1, 1, 1, [4]),
    ]
    assert staging_bytes(batches) == 256
    assert ids.dtype == np.int64


def test_an_object_that_is_larger_than_a_batch_is_one() -> None:
    layout = layout_of([cuda_handle((6, 4, 8))], {}, [], engine_type="vllm", chunk_size=CHUNK)
    batches, _ = cut_into_batches(layout, copies(layout, [(0, 0), (0, 0)]), 1)
    assert [len(batch.copies) for batch in batches] == [1, 1]
    assert staging_bytes(batches) == 128


def test_nothing_to_copy_needs_no_batch() -> None:
    layout = layout_of([cuda_handle((6, 4, 8))], {}, [], engine_type="vllm", chunk_size=CHUNK)
    batches, ids = cut_into_batches(layout, copies(layout, [(0, 2)]), 1)
    assert (batches, staging_bytes(batches), ids.tolist()) == ([], 0, [])
