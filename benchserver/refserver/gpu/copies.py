"""Copies between a client's paged tensors and chunk objects on a GPU: the twin of `transfer`.

Works on torch tensors of any device.  Blocks are gathered on the device into a staging buffer
that is laid out as the objects are, and each object is then one copy to host memory; the way back
is the same in the other order.  So PCIe carries long pieces, and the gather needs a few launches
for all chunks of a batch, whatever the size of a block.

Elements are moved as integers, where the pages allow it eight bytes at a time: no copy may change
a bit.  Layers of a group that lie at equal distances in one storage are one tensor, and gathered
at once; others layer by layer.

The floor is the copy itself: bytes over the bandwidth of pinned copies (55 GB/s on an H200), so
19.5 ms for 1 GiB; the gather beside it moves each byte four times at the device's own bandwidth,
2 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from benchserver.refserver.pages.layout import AXES, GroupLayout, KvLayout, LayerGeometry
from benchserver.refserver.pages.transfer import ObjectCopy
from protocol.dtypes import ITEM_BYTES
from protocol.handles import KvHandle, contiguous_strides

Tensor: TypeAlias = Any
"""A torch.Tensor; torch is loaded only where there is one."""

_WIDE_BYTES = 8


def tensor_over(storage: Any, handle: KvHandle, *, offset_bytes: int, device: Any) -> Tensor:
    """Return the tensor that a descriptor names, over the storage that its memory is mapped as.

    `offset_bytes` is where in the storage the descriptor's offsets count from.
    """
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    item_bytes = ITEM_BYTES[handle.dtype]
    # An axis of one element may have any stride, also one that torch cannot hold.
    columns = zip(handle.shape, handle.stride, contiguous_strides(handle.shape), strict=True)
    strides = [stride if n > 1 else plain for n, stride, plain in columns]
    offset = offset_bytes // item_bytes + handle.storage_offset
    return torch.empty(0, dtype=words[item_bytes], device=device).set_(
        storage, offset, handle.shape, strides
    )


def paged_view(tensor: Tensor, geometry: LayerGeometry) -> Tensor:
    """Return a tensor with its axes as [plane][block][slot][head][element]; no copy."""
    axes = AXES[geometry.form]
    return tensor.permute(axes.order)[axes.widening]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPages:
    """A kernel group's blocks, as they are gathered.

    `parts` are pairs of a first layer and a tensor [layer][plane][block][page ...]; together they
    hold all layers of the group.  `word` is the type of their elements, and `object_shape` an
    object's in these: [plane][layer][block][page ...].
    """

    parts: tuple[tuple[int, Tensor], ...]
    word: Any
    object_shape: tuple[int, ...]


def group_pages(tensors: Sequence[Tensor], group: GroupLayout) -> GroupPages:
    """Return the blocks of a group, whose layers are among `tensors`."""
    views = [paged_view(tensors[layer], group.geometry) for layer in group.layers]
    views = _widened(_flattened([view[:, : group.num_blocks] for view in views]))
    planes, _, *page = views[0].shape
    return GroupPages(
        parts=_stacked(views),
        word=views[0].dtype,
        object_shape=(planes, len(views), group.blocks_per_chunk, *page),
    )


def _flattened(views: list[Tensor]) -> list[Tensor]:
    """Return views with one axis for a page, if a page is one piece of memory in all of them."""
    if not all(view[0, 0].is_contiguous() for view in views):
        return views
    return [view.view(*view.shape[:2], -1) for view in views]


def _widened(views: list[Tensor]) -> list[Tensor]:
    """Return views with elements of eight bytes, if all of them can be seen so."""
    import torch

    ratio = _WIDE_BYTES // views[0].element_size()
    if not all(_is_wide(view, ratio) for view in views):
        return views
    return [view.view(torch.int64) for view in views]


def _is_wide(view: Tensor, ratio: int) -> bool:
    *outer, last = view.stride()
    counts = (view.shape[-1], view.storage_offset(), *outer)
    fits = last == 1 and not any(count % ratio for count in counts)
    return fits and not view.data_ptr() % _WIDE_BYTES


def _stacked(views: list[Tensor]) -> tuple[tuple[int, Tensor], ...]:
    """Return all layers as one tensor if they lie at equal distances, or else one by one."""
    offsets = [view.storage_offset() for view in views]
    steps = {after - before for before, after in pairwise(offsets)}
    places = {(view.untyped_storage().data_ptr(), view.stride()) for view in views}
    if len(places) > 1 or len(steps) != 1 or min(steps) <= 0:
        return tuple((layer, view.unsqueeze(0)) for layer, view in enumerate(views))
    # Storages that start at one place may differ in length: in the longest one all layers lie.
    longest = max(views, key=lambda view: view.untyped_storage().nbytes())
    shape, strides = (len(views), *longest.shape), (min(steps), *longest.stride())
    return ((0, longest.as_strided(shape, strides, offsets[0])),)


def gather(pages: GroupPages, ids: Tensor, objects: Tensor) -> None:
    """Copy blocks into objects.

    `ids`: the objects' block ids one after the other, int64 on the pages' device.  `objects`:
    bytes on that device, one object after the other.
    """
    held = _as_objects(pages, objects)
    for first, part in pages.parts:
        taken = part.index_select(2, ids)
        taken = taken.reshape(*taken.shape[:2], len(held), -1, *taken.shape[3:])
        held[:, :, first : first + len(part)].copy_(_layers_and_objects_swapped(taken))


def scatter(pages: GroupPages, ids: Tensor, objects: Tensor, skip_blocks: int = 0) -> None:
    """Copy objects into blocks, without the first `skip_blocks` of each, which `ids` leave out."""
    held = _as_objects(pages, objects)[:, :, :, skip_blocks:]
    for first, part in pages.parts:
        rows = _layers_and_objects_swapped(held[:, :, first : first + len(part)])
        part.index_copy_(2, ids, rows.flatten(2, 3))


def _as_objects(pages: GroupPages, objects: Tensor) -> Tensor:
    """Return bytes as [object][plane][layer][block][page ...]."""
    return objects.view(pages.word).view(-1, *pages.object_shape)


def _layers_and_objects_swapped(tensor: Tensor) -> Tensor:
    """Return [object][plane][layer] ... as [layer][plane][object] ..., or the other way round."""
    return tensor.transpose(0, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Objects of one group that are staged together; the same blocks of each are skipped.

    `ids` is where their block ids lie among those of the whole transfer.
    """

    group: int
    skip_blocks: int
    copies: tuple[ObjectCopy, ...]
    ids: slice


def cut_into_batches(
    layout: KvLayout, copies: Sequence[ObjectCopy], batch_bytes: int
) -> tuple[list[Batch], npt.NDArray[np.int64]]:
    """Return a transfer's batches, each of at most `batch_bytes` or one object, and all its ids.

    Objects of which everything is skipped are in no batch.
    """
    batches: list[Batch] = []
    ids: list[int] = []
    for (group, skip), same in groupby(sorted(copies, key=_alike), key=_alike):
        alike = list(same) if skip < layout.groups[group].blocks_per_chunk else []
        count = max(1, batch_bytes // layout.groups[group].nbytes)
        for first in range(0, len(alike), count):
            own = tuple(alike[first : first + count])
            start = len(ids)
            for copy in own:
                ids.extend(copy.block_ids[skip:])
            batches.append(
                Batch(group=group, skip_blocks=skip, copies=own, ids=slice(start, len(ids)))
            )
    return batches, np.array(ids, dtype=np.int64)


def _alike(copy: ObjectCopy) -> tuple[int, int]:
    return copy.group, copy.skip_blocks


def staging_bytes(batches: Sequence[Batch]) -> int:
    """Return how large the staging buffer must be."""
    sizes = [sum(copy.data.nbytes for copy in batch.copies) for batch in batches]
    return max(sizes, default=0)


Move = Callable[[GroupPages, Batch, Tensor, Tensor], None]
"""Submits one batch: its group's pages, the batch, all ids, the staging buffer.

On a GPU nothing is done yet when it returns; whatever follows on the stream comes after it."""


def store_batch(pages: GroupPages, batch: Batch, ids: Tensor, staging: Tensor) -> None:
    """Copy pages into chunk objects."""
    objects = staging[: staging_bytes([batch])]
    gather(pages, ids[batch.ids], objects)
    for host, staged in _pairs(batch, objects):
        host.copy_(staged, non_blocking=True)


def retrieve_batch(pages: GroupPages, batch: Batch, ids: Tensor, staging: Tensor) -> None:
    """Copy chunk objects into pages."""
    objects = staging[: staging_bytes([batch])]
    for host, staged in _pairs(batch, objects):
        staged.copy_(host, non_blocking=True)
    scatter(pages, ids[batch.ids], objects, batch.skip_blocks)


def _pairs(batch: Batch, objects: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return each object as it lies in host memory and in the staging buffer."""
    import torch

    staged = objects.view(len(batch.copies), -1)
    return [(torch.from_numpy(c.data), staged[i]) for i, c in enumerate(batch.copies)]


def read_blocks(view: Tensor, block_ids: Sequence[int], word: Any) -> npt.NDArray[Any]:
    """Return a copy of some blocks of a `paged_view`, with elements of a numpy type `word`."""
    import torch

    ids = torch.tensor(list(block_ids), dtype=torch.int64, device=view.device)
    taken: npt.NDArray[Any] = view.index_select(1, ids).cpu().numpy()
    return taken.view(word)


def write_blocks(view: Tensor, block_ids: Sequence[int], data: npt.NDArray[Any]) -> None:
    """Replace some blocks of a `paged_view`."""
    import torch

    ids = torch.tensor(list(block_ids), dtype=torch.int64, device=view.device)
    signed = {1: np.uint8, 2: np.int16, 4: np.int32}[data.itemsize]
    source = torch.from_numpy(np.ascontiguousarray(data).view(signed))
    view.index_copy_(1, ids, source.to(view.device))


def bytes_of_blocks(
    tensor: Tensor, block_ids: Sequence[int], *, axis: int, widened: bool
) -> memoryview:
    """Return blocks along an axis in C order, as bytes on the host.

    `widened`: the elements are bfloat16, and become float32.
    """
    import torch

    ids = torch.tensor(list(block_ids), dtype=torch.int64, device=tensor.device)
    taken = tensor.index_select(axis, ids)
    if widened:
        taken = taken.to(torch.int32) << 16
    host: npt.NDArray[Any] = taken.contiguous().cpu().numpy()
    return host.data
