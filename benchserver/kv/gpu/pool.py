"""A KV pool in the memory of one GPU.

The pool is one flat tensor, laid out as a segment on the host is.  Content, poison and canaries
are written and compared on the device; what comes to the host is how many pages were wrong, and,
only if any was, which ones and the bytes of the first.  Only the digests' input crosses as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.cuda import mark
from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import Window, check_fillable, check_window
from benchserver.kv.content import PoolContent
from benchserver.kv.gpu.choice import Kernels, choose_contents
from benchserver.kv.gpu.chunks import Chunks
from benchserver.kv.gpu.events import CudaEvents
from benchserver.kv.gpu.lanes import Lanes
from benchserver.kv.gpu.memory import CudaMemory
from benchserver.kv.gpu.pages import (
    COUNT_AT,
    NO_PLACES,
    Call,
    fetch_flags,
    fetch_places,
    fill_blocks,
    flip,
    not_filled,
    poison,
    start_call,
)
from benchserver.kv.gpu.queue import DeviceQueue
from benchserver.kv.gpu.views import view_pool
from benchserver.kv.layout import place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8
from benchserver.kv.pool import WHOLE, Compared, Places, Share
from protocol.handles import KvHandle
from shapespec import element_strides, tensor_shape


class CudaPool:
    """One rank's pool on a GPU; see `benchserver.kv.pool.KvPool`.

    Memory and events belong to the pool.  All fills, poisons and comparisons run on `stream`, the
    events' own; chunks are copied on the streams of `lanes` (see `gpu.lanes` for what they pin),
    which pools may share.  The tensor may also be on torch's CPU device, with `stream` None.

    `kernels` says whether Triton or torch writes and compares the content: afterwards
    `kernels_note` is empty if it is Triton, else why it is not.

    Every method raises FatalError, in one line, for what CUDA refuses.
    """

    asynchronous = True
    """A server replies before it has copied: the reply's event tells when it has."""

    def __init__(
        self,
        content: PoolContent,
        *,
        memory: CudaMemory,
        events: CudaEvents,
        cancel: threading.Event,
        kernels: Kernels = "auto",
        lanes: Lanes | None = None,
    ) -> None:
        self.content = content
        self._queue = DeviceQueue(memory.device, events.stream)
        self._memory = memory
        self._events = events
        self._cancel = cancel
        self._closed = False
        with self._queue.working("the pool cannot be made"):
            self._view = view_pool(memory.tensor, content.spec)
            choice = choose_contents(self._view.groups, content, kernels=kernels)
            self._contents, self.kernels_note = choice.contents, choice.note
            self._view.write_canaries()
        self._chunks = Chunks(
            self._view,
            self._queue,
            blocks_per_chunk=content.blocks_per_chunk,
            cancel=cancel,
            lanes=lanes,
        )

    @property
    def stream(self) -> Any:
        """Return the torch.cuda.Stream on which the pool works."""
        return self._queue.stream

    # Writing

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Enqueue the content of the chunks into the window's blocks, in a share of the layers."""
        check_fillable(window)
        with self._queue.working("fill"):
            call = self._start(window, digests)
            for content in self._contents:
                self._check_cancel()
                content.fill(call, share)

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Enqueue poison into the blocks, canary bytes into the canaries, in this share."""
        check_window(window, self.content.spec.num_blocks)
        with self._queue.working("poison"):
            canaries = self._queue.upload(window.canaries) if window.canaries else None
            for view in self._view.groups:
                self._check_cancel()
                poison(view, window, share, POISON_BYTE)
                if canaries is not None:
                    fill_blocks(view, canaries, share, CANARY_BYTE)

    def reuse(self, window: Window, share: Share = WHOLE) -> None:
        """Enqueue an XOR of the window's bytes with REUSED_MASK, in this share of the layers."""
        check_fillable(window)
        check_window(window, self.content.spec.num_blocks)
        with self._queue.working("reuse"):
            for view in self._view.groups:
                self._check_cancel()
                flip(view, window, share, REUSED_MASK)

    # Seeing

    def compare(
        self, window: Window, digests: Sequence[int], *, skipped: int = 0, reused: bool = False
    ) -> Compared:
        """Compare the blocks with their content; `reused` ones are XORed back to it first."""
        if reused:
            self.reuse(window)
        with self._queue.working("compare"):
            call = self._start(window, digests)
            found: list[Any] = []
            for content in self._contents:
                self._check_cancel()
                found.append(content.compare(call, skipped))
            if int(call.numbers[COUNT_AT].item()) == 0:
                return Compared(places=NO_PLACES)
            return Compared(places=fetch_places(self._view.groups, found))

    def not_filled(self, block_ids: Sequence[int], byte: int) -> Places:
        """Return the pages of the blocks that hold anything else than `byte`."""
        with self._queue.working("compare"):
            ids = self._queue.upload(block_ids)
            found: list[Any] = []
            for view in self._view.groups:
                self._check_cancel()
                found.append(not_filled(view, ids, byte))
            return fetch_places(self._view.groups, found)

    def wrong_guards(self) -> Mapping[int, U8]:
        """Return the bytes of every guard that was written, by its number."""
        groups = [self._view.first_guard[None], *(view.guards for view in self._view.groups)]
        with self._queue.working("compare"):
            flags = fetch_flags([(rows != CANARY_BYTE).any(dim=1) for rows in groups])
            guards = [guard for rows in groups for guard in rows]
            wrong = np.flatnonzero(np.concatenate(flags))
            return {int(number): guards[number].cpu().numpy() for number in wrong}

    def page(self, layer: int, plane: int, block_id: int) -> U8:
        """Fetch the bytes of one page."""
        view = next(view for view in self._view.groups if layer in view.layers)
        with self._queue.working("compare"):
            return view.page(layer - view.layers.start, plane, block_id)

    # Chunks

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of one chunk's blocks, as the server's API defines it."""
        md5 = hashlib.md5(usedforsecurity=False)
        for part in self.hashed_slices(block_ids):
            md5.update(part.data)
        return md5.hexdigest()

    def hashed_slices(self, block_ids: Sequence[int]) -> Iterator[U8]:
        """Yield what the digest of a chunk is made of, in order, slice by slice.

        A slice lies in pinned memory, and is valid until the next is asked for.
        """
        self._check_blocks(block_ids)
        return self._chunks.hashed_slices(block_ids)

    def gather_chunk(
        self, group: int, block_ids: Sequence[int], out: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk of a group into `out`, laid out [plane][layer][token][hidden], flat."""
        self._check_blocks(block_ids)
        self._chunks.gather(group, block_ids, out)

    def scatter_chunk(
        self, group: int, block_ids: Sequence[int], data: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk object, laid out as `gather_chunk` does, into the blocks.

        The blocks hold it when this returns.
        """
        self._check_blocks(block_ids)
        self._chunks.scatter(group, block_ids, data)

    # Sharing

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Sequence[KvHandle]]:
        """Return every layer's descriptor; a server may open them as long as the pool lives."""
        handles: list[KvHandle] = []
        for place in place_tensors(self.content.spec)[0]:
            group = self.content.spec.groups[place.group]
            handles.append(
                self._memory.handle(
                    dtype=group.dtype.name,
                    shape=tensor_shape(group, hnd=hnd),
                    stride=element_strides(group, hnd=hnd),
                    offset=place.offset,
                )
            )
        mark.note()
        yield handles

    def record_event(self) -> bytes:
        """Return the handle of an event behind all work on `stream` so far."""
        return self._events.record()

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        """Wait until the event has completed; raises EventError as KvPool says."""
        self._events.wait(handle, timeout_ns)

    def release(self) -> None:
        """Take our names out of /dev/shm; the memory goes with the process."""
        self._memory.release()

    def close(self) -> None:
        """Wait for what is under way, and give the memory back."""
        if self._closed:
            return
        self._closed = True
        self._queue.finish()
        del self._view, self._contents, self._chunks  # all that holds on to the memory
        self._memory.close()

    # What a device would not refuse

    def _start(self, window: Window, digests: Sequence[int]) -> Call:
        per_chunk = self.content.blocks_per_chunk
        if len(digests) * per_chunk != len(window.block_ids):
            raise ValueError(
                f"{len(digests)} chunks of {per_chunk} blocks, but a block table of "
                f"{len(window.block_ids)}"
            )
        return start_call(
            window,
            digests,
            num_blocks=self.content.spec.num_blocks,
            rank=self.content.rank,
            device=self._queue.device,
        )

    def _check_blocks(self, block_ids: Sequence[int]) -> None:
        blocks = self.content.spec.num_blocks
        if not block_ids or not (min(block_ids) >= 0 and max(block_ids) < blocks):
            raise IndexError(f"block ids {list(block_ids)[:8]} of a pool of {blocks} blocks")

    def _check_cancel(self) -> None:
        if self._cancel.is_set():
            raise WorkCancelledError
