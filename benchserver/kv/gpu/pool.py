"""CUDA: whether it can be used, and a KV pool in the memory of one GPU.

The pool is one flat tensor, laid out as a segment on the host is.  Content, poison and canaries
are written and compared on the device; what comes to the host is how many pages were wrong, and,
only if any was, which ones and the bytes of the first.  It is described by the code that
describes pages on the host.  Only the digests' input crosses as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchserver.cuda import mark
from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import NULL_BLOCKS, Window
from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault, merge
from benchserver.kv.gpu.choice import Kernels, choose_contents
from benchserver.kv.gpu.chunks import Chunks
from benchserver.kv.gpu.events import CudaEvents
from benchserver.kv.gpu.flags import FirstFault, Flags, Found, fetch_flags, layer_evidence
from benchserver.kv.gpu.lanes import Lanes
from benchserver.kv.gpu.memory import CudaMemory
from benchserver.kv.gpu.pages import (
    COUNT_AT,
    Call,
    check_window,
    fill_blocks,
    flip,
    not_filled,
    poison,
    start_call,
)
from benchserver.kv.gpu.queue import DeviceQueue
from benchserver.kv.gpu.views import GroupView, view_pool
from benchserver.kv.layout import TensorPlace, place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8, GroupPattern
from benchserver.kv.pool import WHOLE, Share
from benchserver.kv.verify import Candidate
from benchserver.kv.wrongpages import FaultDescriber, PagePlace, check_fillable, check_skipped
from protocol.handles import KvHandle
from shapespec import ShapeSpec, block_bytes, element_strides, planes, tensor_shape


class CudaPool:
    """One rank's pool on a GPU; see `benchserver.kv.pool.KvPool`.

    Memory and events belong to the pool.  All fills, poisons and comparisons run on `stream`, the
    events' own; chunks are copied on the streams of `lanes` (see `gpu.lanes` for what they pin),
    which pools may share.  The tensor may also be on torch's CPU device, with `stream` None.

    `kernels` says whether Triton or torch writes and compares the content: afterwards
    `kernels_note` is empty if it is Triton, else why it is not.  `content_rank` is the rank whose
    content the pages hold: the worker's own, or 0 for MLA.

    Every method raises FatalError, in one line, for what CUDA refuses.
    """

    asynchronous = True
    """A server replies before it has copied: the reply's event tells when it has."""

    def __init__(
        self,
        spec: ShapeSpec,
        patterns: Sequence[GroupPattern],
        *,
        memory: CudaMemory,
        events: CudaEvents,
        content_rank: int,
        ranks: int,
        blocks_per_chunk: int,
        cancel: threading.Event,
        kernels: Kernels = "auto",
        lanes: Lanes | None = None,
    ) -> None:
        self._queue = DeviceQueue(memory.device, events.stream)
        self._spec = spec
        self._memory = memory
        self._events = events
        self._rank = content_rank
        self._blocks_per_chunk = blocks_per_chunk
        self._cancel = cancel
        self._closed = False
        self._faults = FaultDescriber(
            patterns=patterns,
            content_rank=content_rank,
            ranks=ranks,
            blocks_per_chunk=blocks_per_chunk,
        )
        self._places, _ = place_tensors(spec)
        self._block_bytes = block_bytes(spec)
        self._pages_a_block = sum(group.layers * planes(group) for group in spec.groups)
        with self._queue.working("the pool cannot be made"):
            self._view = view_pool(memory.tensor, spec)
            choice = choose_contents(
                self._view.groups,
                patterns,
                rank=content_rank,
                blocks_per_chunk=blocks_per_chunk,
                kernels=kernels,
            )
            self._contents, self.kernels_note = choice.contents, choice.note
            self._view.write_canaries()
        self._chunks = Chunks(
            self._view, self._queue, blocks_per_chunk=blocks_per_chunk, cancel=cancel, lanes=lanes
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
        """Enqueue poison into the blocks, canary bytes into the canaries, in such a share."""
        check_window(window, self._spec.num_blocks)
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
        check_window(window, self._spec.num_blocks)
        with self._queue.working("reuse"):
            for view in self._view.groups:
                self._check_cancel()
                flip(view, window, share, REUSED_MASK)

    # Seeing

    def verify_reused(
        self, window: Window, digests: Sequence[int], candidates: Sequence[Candidate]
    ) -> Evidence:
        """XOR the blocks back to what they held, and look at every byte of them."""
        self.reuse(window)
        return self.verify(window, digests, candidates)

    def verify(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int = 0,
    ) -> Evidence:
        """Compare every page with its pattern, but for the first `skipped` blocks of the table.

        Raises ValueError if there is no page left to look at.
        """
        check_skipped(window, skipped, looked_at=False)
        with self._queue.working("compare"):
            call = self._start(window, digests)
            found: list[Any] = []
            for content in self._contents:
                self._check_cancel()
                found.append(content.compare(call, skipped))
            if int(call.numbers[COUNT_AT].item()) == 0:
                return self._all_match(len(window.block_ids) - skipped)
            return self._mismatch(window, digests, candidates, found, skipped)

    def _all_match(self, columns: int) -> Evidence:
        return Evidence(
            kind=EvidenceKind.MATCH,
            pages=columns * self._pages_a_block,
            checked_bytes=columns * self._block_bytes,
        )

    def _mismatch(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        found: Sequence[Any],
        skipped: int,
    ) -> Evidence:
        blocks = self._queue.upload(window.block_ids[skipped:])
        parts: list[Evidence] = []
        first = FirstFault()
        for view, flags in zip(self._view.groups, fetch_flags(found), strict=True):
            poisoned: Flags | None = None
            if bool((flags != 0).all(axis=(1, 2)).any()):
                (other,) = fetch_flags([not_filled(view, blocks, POISON_BYTE)])
                poisoned = ~other

            def describe(page: Found, view: GroupView = view) -> PageFault:
                where, seen = self._wrong_page(view, page, window, skipped)
                return self._faults.content(where, window, digests, seen, candidates)

            parts += layer_evidence(view, flags, first, describe, poisoned=poisoned)
        return merge(parts)

    def _wrong_page(
        self, view: GroupView, page: Found, window: Window, skipped: int
    ) -> tuple[PagePlace, U8]:
        """Return the place and the bytes of a page; its column counts from the skipped blocks."""
        where = PagePlace(
            group=view.index,
            layer=view.layers[page.layer],
            plane=page.plane,
            column=page.column + skipped,
        )
        return where, view.page(page.layer, page.plane, window.block_ids[where.column])

    def verify_skipped(
        self,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int,
    ) -> Evidence:
        """Look whether the first `skipped` blocks of the table are poison still.

        Raises ValueError if that is no block at all, or more than there are.
        """
        check_skipped(window, skipped, looked_at=True)
        check_window(window, self._spec.num_blocks)
        parts: list[Evidence] = []
        first = FirstFault()
        with self._queue.working("compare"):
            for view, flags in self._not_filled(window.block_ids[:skipped], POISON_BYTE):

                def describe(page: Found, view: GroupView = view) -> PageFault:
                    where, seen = self._wrong_page(view, page, window, 0)
                    return self._faults.skipped(where, window, seen, candidates)

                parts += layer_evidence(view, flags, first, describe)
        return merge(parts)

    def verify_canaries(self, window: Window) -> Evidence:
        """Look at the window's canaries, the null block and the guards between the tensors."""
        check_window(window, self._spec.num_blocks)
        blocks = [*range(NULL_BLOCKS), *window.canaries]
        parts: list[Evidence] = []
        first = FirstFault()
        with self._queue.working("compare"):
            for view, flags in self._not_filled(blocks, CANARY_BYTE):

                def describe(page: Found, view: GroupView = view) -> PageFault:
                    block_id = blocks[page.column]
                    return self._faults.canary(
                        group=view.index,
                        layer=view.layers[page.layer],
                        plane=page.plane,
                        block_id=block_id,
                        seen=view.page(page.layer, page.plane, block_id),
                    )

                parts += layer_evidence(view, flags, first, describe, by_plane=True)
            parts += self._guards(first)
        return merge(parts)

    def _not_filled(self, blocks: Sequence[int], byte: int) -> list[tuple[GroupView, Flags]]:
        """Tell for every group which pages of the blocks hold anything but `byte`."""
        ids = self._queue.upload(blocks)
        found: list[Any] = []
        for view in self._view.groups:
            self._check_cancel()
            found.append(not_filled(view, ids, byte))
        return list(zip(self._view.groups, fetch_flags(found), strict=True))

    def _guards(self, first: FirstFault) -> list[Evidence]:
        """Return the evidence of every guard: the one before all tensors, then each behind one."""
        guards = [self._view.first_guard, *(g for view in self._view.groups for g in view.guards)]
        groups = [self._view.first_guard[None], *(view.guards for view in self._view.groups)]
        flags = fetch_flags([(rows != CANARY_BYTE).any(dim=1) for rows in groups])
        parts: list[Evidence] = []
        for index, wrong in enumerate(np.concatenate(flags)):
            place, guard = self._places[max(0, index - 1)], guards[index]

            def describe(place: TensorPlace = place, guard: Any = guard) -> PageFault:
                seen: U8 = guard.cpu().numpy()
                return self._faults.canary(
                    group=place.group, layer=place.layer, plane=0, block_id=-1, seen=seen
                )

            parts.append(
                Evidence(
                    kind=EvidenceKind.MISMATCH if wrong else EvidenceKind.MATCH,
                    pages=1,
                    bad_pages=int(wrong),
                    checked_bytes=guard.numel(),
                    first=first.describe(describe) if wrong else None,
                )
            )
        return parts

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
        for place in self._places:
            group = self._spec.groups[place.group]
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
        blocks = len(digests) * self._blocks_per_chunk
        if blocks != len(window.block_ids):
            raise ValueError(
                f"{len(digests)} chunks of {self._blocks_per_chunk} blocks, but a block table of "
                f"{len(window.block_ids)}"
            )
        return start_call(
            window,
            digests,
            num_blocks=self._spec.num_blocks,
            rank=self._rank,
            device=self._queue.device,
        )

    def _check_blocks(self, block_ids: Sequence[int]) -> None:
        if not block_ids or not (min(block_ids) >= 0 and max(block_ids) < self._spec.num_blocks):
            raise IndexError(
                f"block ids {list(block_ids)[:8]} of a pool of {self._spec.num_blocks} blocks"
            )

    def _check_cancel(self) -> None:
        if self._cancel.is_set():
            raise WorkCancelledError
