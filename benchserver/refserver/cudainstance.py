"""A registered client whose KV tensors lie on a GPU: the twin of `registry.MappedInstance`.

Everything that touches the device is submitted to the instance's own stream, from any thread; a
lock keeps two transfers from using the staging buffer in turns.  Memory is unmapped only when
nothing is under way: a stream that does not come to its end keeps it until the process ends.

A client that was killed stays registered until it is reaped, as with the real server; its GPU
memory is taken until then, for CUDA frees what is mapped elsewhere only after the last unmapping.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from benchserver.refserver.cudadevice import refusing
from benchserver.refserver.cudapages import (
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
from benchserver.refserver.cudastream import STOP_WITHIN_NS, Landing, Stream, wait_until
from benchserver.refserver.layout import BLOCK_AXIS, Format, KvLayout
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.tenancy import Liveness, Tenancy
from benchserver.refserver.transfer import ObjectCopy, Pages, word_of

T = TypeVar("T")

BATCH_BYTES = 256 << 20
"""Of staging on the device, and as much again while it is filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHashedLayer:
    """One registered tensor, in its own order of axes."""

    tensor: Tensor
    form: Format
    dtype: str

    @property
    def num_blocks(self) -> int:
        """Return how many blocks the tensor has."""
        return int(self.tensor.shape[BLOCK_AXIS[self.form]])

    def bytes_of(self, block_ids: Sequence[int]) -> memoryview:
        """Return blocks as a digest takes them."""
        axis, widened = BLOCK_AXIS[self.form], self.dtype == "bfloat16"
        return bytes_of_blocks(self.tensor, block_ids, axis=axis, widened=widened)


class CudaInstance:
    """A client whose GPU memory the server has mapped (lmcache_driven)."""

    def __init__(
        self,
        *,
        model_name: str,
        world_size: int,
        layout: KvLayout,
        dtypes: Sequence[str],
        tensors: Sequence[Tensor],
        stream: Stream,
        stopping: threading.Event,
        unmap: Callable[[], None],
        now_ns: int,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """`unmap` lets go of the tensors' memory; it is called once nothing refers to them here."""
        self.model_name = model_name
        self.world_size = world_size
        self.layout = layout
        self.dtypes = tuple(dtypes)
        self.liveness = Liveness(last_seen_ns=now_ns)
        self.tenancy = Tenancy(self._let_go)
        self._stream = stream
        self._stopping = stopping
        self._unmap = unmap
        self._batch_bytes = batch_bytes
        self._lock = threading.Lock()
        self._staging: Tensor = None
        self._tensors = list(tensors)
        self._pages = [group_pages(tensors, group) for group in layout.groups]

    def in_use(self) -> AbstractContextManager[None]:
        """Keep the memory mapped."""
        return self.tenancy.in_use()

    def close(self) -> None:
        """Unmap, now or when the last use ends."""
        self.tenancy.close()

    def submit_store(self, event: bytes, copies: Sequence[ObjectCopy]) -> Landing:
        """Submit copies of pages into chunk objects, behind a client's event.

        Returns before they are done.  Raises RefusalError if nothing was submitted, or the device
        has failed for good.
        """
        return self._submit(event, copies, store_batch)

    def submit_retrieve(self, event: bytes, copies: Sequence[ObjectCopy]) -> Landing:
        """Submit copies of chunk objects into pages, as `submit_store` does."""
        return self._submit(event, copies, retrieve_batch)

    def _submit(self, event: bytes, copies: Sequence[ObjectCopy], move: Move) -> Landing:
        import torch

        batches, table = cut_into_batches(self.layout, copies, self._batch_bytes)
        with self._lock, refusing("copies on the GPU"), self._stream.running():
            # What may be refused comes first: from then on, memory is being written.  And the ids
            # before the wait: a copy of pageable memory may block until the stream gets to it.
            staging = self._staging_of(staging_bytes(batches))
            host_ids = torch.from_numpy(table)
            ids = host_ids.to(self._stream.device, non_blocking=True)
            self._stream.wait_for(event)
            for batch in batches:
                move(self._pages[batch.group], batch, ids, staging)
            return self._stream.record((copies, host_ids))

    def _staging_of(self, nbytes: int) -> Tensor:
        import torch

        if self._staging is None or len(self._staging) < nbytes:
            self._staging = None
            self._staging = torch.empty(nbytes, dtype=torch.uint8, device=self._stream.device)
        return self._staging

    def warm_up(self) -> None:
        """Run every kernel of a transfer once, on scratch memory but for reads of block 0.

        CUDA loads a kernel when it first runs, which takes time, and may wait for all streams.
        """
        import torch

        with self._lock, refusing("kernels on the GPU"), self._stream.running():
            device = self._stream.device
            for group, pages in zip(self.layout.groups, self._pages, strict=True):
                objects = torch.empty(2 * group.nbytes, dtype=torch.uint8, device=device)
                ids = torch.zeros(2 * group.blocks_per_chunk, dtype=torch.int64, device=device)
                gather(pages, ids, objects)
                scratch = tuple((first, part[:, :, :1].clone()) for first, part in pages.parts)
                scatter(replace(pages, parts=scratch), ids, objects)
            self._await(self._stream.is_idle)

    def completed_event(self) -> bytes:
        """Return the handle of an event that has completed."""
        with refusing("an event on the GPU"), self._stream.beside():
            landing = self._stream.record()
            self._await(landing.is_done)
            return landing.handle

    def order_after(self, event: bytes) -> None:
        """Let what is submitted from now on wait for a client's event."""
        with refusing("an event on the GPU"), self._stream.running():
            self._stream.wait_for(event)

    def read_blocks(self, layer: int, block_ids: Sequence[int]) -> Pages:
        """Return a copy of blocks as [plane][block][slot][head][element], once all is done."""
        with refusing("a copy from the GPU"), self._stream.running():
            self._await(self._stream.is_idle)
            return read_blocks(self._view(layer), block_ids, word_of(self.dtypes[layer]))

    def write_blocks(self, layer: int, block_ids: Sequence[int], data: Pages) -> None:
        """Replace blocks, behind all that was submitted; returns when it is done."""
        with refusing("a copy to the GPU"), self._stream.running():
            self._await(self._stream.is_idle)
            write_blocks(self._view(layer), block_ids, data)
            self._await(self._stream.is_idle)

    def _view(self, layer: int) -> Tensor:
        group = next(group for group in self.layout.groups if layer in group.layers)
        return paged_view(self._tensors[layer], group.geometry)

    def hashed_layers(self) -> list[CudaHashedLayer]:
        """Return every layer in its own order of axes; drop it after use."""
        columns = zip(self._tensors, self.layout.formats, self.dtypes, strict=True)
        return [CudaHashedLayer(tensor=t, form=f, dtype=d) for t, f, d in columns]

    def hashed(
        self,
        digest: Callable[[Sequence[CudaHashedLayer], Sequence[int], int], T],
        block_ids: Sequence[int],
        blocks_per_chunk: int,
    ) -> T:
        """Return what a function of `checksums` makes of the layers, once transfers are done."""
        with refusing("digests of GPU memory"), self._stream.beside():
            self._await(self._stream.is_idle)
            return digest(self.hashed_layers(), block_ids, blocks_per_chunk)

    def _await(self, done: Callable[[], bool]) -> None:
        if not wait_until(done, stopping=self._stopping):
            raise RefusalError("the GPU is still busy with what this client ordered before")

    def _let_go(self) -> None:
        try:
            is_idle = wait_until(
                self._stream.is_idle, stopping=self._stopping, within_ns=STOP_WITHIN_NS
            )
        except RefusalError:
            is_idle = True  # the device has failed: nothing will run there any more
        if not is_idle:
            return
        self._pages.clear()
        self._tensors.clear()
        self._staging = None
        self._unmap()
