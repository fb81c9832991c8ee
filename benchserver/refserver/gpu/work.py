"""What is done with a client's tensors on a GPU: copies, digests, and block by block.

Its methods touch the device and may block, so they belong in the client's own thread; `hashed` is
for any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchserver.refserver.gpu.copies import (
    Move,
    Tensor,
    bytes_of_blocks,
    cut_into_batches,
    gather,
    group_pages,
    paged_view,
    read_blocks,
    retrieve_batch,
    scatter,
    staging_bytes,
    store_batch,
    write_blocks,
)
from benchserver.refserver.gpu.device import refusing
from benchserver.refserver.gpu.stream import Stream, Submitted, wait_until
from benchserver.refserver.instance import Digest
from benchserver.refserver.pages.layout import AXES, Format, KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy, Pages, word_of
from benchserver.refserver.refusal import RefusalError

T = TypeVar("T")

BUSY = "the GPU is still busy with what this client ordered before"
"""Why something is refused that can only be done once all is done."""

BATCH_BYTES = 256 << 20
"""Of staging on the device, and as much again while it is filled."""

_FEW_IDS = 16
"""Up to this many indices torch has other kernels to gather and scatter by."""


def _warm_counts(blocks_per_chunk: int) -> list[int]:
    """Return numbers of objects that together take every kernel: one, several, many blocks."""
    return sorted({1, 2, _FEW_IDS // blocks_per_chunk + 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHashedLayer:
    """One registered tensor, in its own order of axes."""

    tensor: Tensor
    form: Format
    dtype: str

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has."""
        return int(self.tensor.shape[AXES[self.form].block])

    def bytes_of(self, block_ids: Sequence[int]) -> memoryview:
        """Return blocks as a digest takes them."""
        axis, widened = AXES[self.form].block, self.dtype == "bfloat16"
        return bytes_of_blocks(self.tensor, block_ids, axis=axis, widened=widened)


class DeviceWork:
    """One client's tensors, and the stream that all work on them is submitted to."""

    def __init__(
        self,
        *,
        layout: KvLayout,
        dtypes: Sequence[str],
        tensors: Sequence[Tensor],
        stream: Stream,
        stopping: threading.Event,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """`stopping`: the server stops, and waits no longer than a moment."""
        self._layout = layout
        self._dtypes = tuple(dtypes)
        self._stream = stream
        self._stopping = stopping
        self._batch_bytes = batch_bytes
        self._staging: Tensor = None
        self._kept: list[Any] = []
        self._tensors = list(tensors)
        self._pages = [group_pages(tensors, group) for group in layout.groups]

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has that has the fewest."""
        return min(layer.num_blocks for layer in self._hashed_layers())

    def is_idle(self) -> bool:
        """Tell whether all that was submitted is done; RefusalError if the device failed."""
        return self._stream.is_idle()

    def submit_store(self, event: bytes, copies: Sequence[ObjectCopy]) -> Submitted:
        """Submit copies of pages into chunk objects, behind a client's event.

        Returns before they are done.  Raises RefusalError if nothing was submitted, or the device
        has failed for good.
        """
        return self._submit(event, copies, store_batch)

    def submit_retrieve(self, event: bytes, copies: Sequence[ObjectCopy]) -> Submitted:
        """Submit copies of chunk objects into pages, as `submit_store` does."""
        return self._submit(event, copies, retrieve_batch)

    def _submit(self, event: bytes, copies: Sequence[ObjectCopy], move: Move) -> Submitted:
        import torch

        batches, table = cut_into_batches(self._layout, copies, self._batch_bytes)
        with refusing("copies on the GPU"), self._stream.running():
            # What may be refused comes first: from then on, memory is being written.
            staging = self._staging_of(staging_bytes(batches))
            with self._stream.beside():
                # A copy of pageable memory may block until its stream gets to it: not in ours.
                ids = torch.from_numpy(table).to(self._stream.device)
            landed = False
            try:
                self._stream.wait_for(event)
                for batch in batches:
                    move(self._pages[batch.group], batch, ids, staging)
                submitted = self._stream.record((copies, ids))
                landed = True
            finally:
                if not landed:
                    self._kept.append((copies, ids))  # some of the work may be under way
            return submitted

    def _staging_of(self, nbytes: int) -> Tensor:
        import torch

        if self._staging is None or len(self._staging) < nbytes:
            self._staging = None
            self._staging = torch.empty(nbytes, dtype=torch.uint8, device=self._stream.device)
        return self._staging

    def warm_up(self) -> None:
        """Run every kernel of a transfer once, on scratch memory except for reads of block 0.

        CUDA loads a kernel when it first runs, which takes time, and may wait for all streams.
        Returns before they are done.
        """
        import torch

        with refusing("kernels on the GPU"), self._stream.running():
            device = self._stream.device
            for group, pages in zip(self._layout.groups, self._pages, strict=True):
                scratch = tuple((first, part[:, :, :1].clone()) for first, part in pages.parts)
                for count in _warm_counts(group.blocks_per_chunk):
                    objects = torch.empty(count * group.nbytes, dtype=torch.uint8, device=device)
                    for skip in (0, 1)[: group.blocks_per_chunk]:
                        number = count * (group.blocks_per_chunk - skip)
                        ids = torch.zeros(number, dtype=torch.int64, device=device)
                        if not skip:
                            gather(pages, ids, objects)
                        scatter(replace(pages, parts=scratch), ids, objects, skip)

    def submit_nothing(self) -> Submitted:
        """Return the end of no work at all, which waits for no other."""
        with refusing("an event on the GPU"), self._stream.beside():
            return self._stream.record()

    def order_after(self, event: bytes) -> None:
        """Let what is submitted from now on wait for a client's event."""
        with refusing("an event on the GPU"), self._stream.running():
            self._stream.wait_for(event)

    def read(self, layer: int, block_ids: Sequence[int]) -> Pages:
        """Return a copy of blocks as [plane][block][slot][head][element], once all is done."""
        with refusing("a copy from the GPU"), self._stream.running():
            self._wait_for(self._stream.is_idle)
            return read_blocks(self._view(layer), block_ids, word_of(self._dtypes[layer]))

    def write(self, layer: int, block_ids: Sequence[int], data: Pages) -> None:
        """Replace blocks, behind all that was submitted; returns when it is done."""
        with refusing("a copy to the GPU"), self._stream.running():
            self._wait_for(self._stream.is_idle)
            write_blocks(self._view(layer), block_ids, data)
            self._wait_for(self._stream.is_idle)

    def hashed(self, digest: Digest[T], block_ids: Sequence[int], blocks_per_chunk: int) -> T:
        """Return what a digest makes of the layers; any thread may call.

        Call it when all transfers are done: it does not wait for them.
        """
        with refusing("digests of GPU memory"), self._stream.beside():
            return digest(self._hashed_layers(), block_ids, blocks_per_chunk)

    def drop(self) -> None:
        """Let go of everything; nothing may be under way."""
        self._pages.clear()
        self._tensors.clear()
        self._kept.clear()
        self._staging = None

    def _hashed_layers(self) -> list[CudaHashedLayer]:
        """Return every layer in its own order of axes; drop it after use."""
        columns = zip(self._tensors, self._layout.formats, self._dtypes, strict=True)
        return [CudaHashedLayer(tensor=t, form=f, dtype=d) for t, f, d in columns]

    def _view(self, layer: int) -> Tensor:
        group = next(group for group in self._layout.groups if layer in group.layers)
        return paged_view(self._tensors[layer], group.geometry)

    def _wait_for(self, done: Callable[[], bool]) -> None:
        if not wait_until(done, stopping=self._stopping):
            raise RefusalError(BUSY)
