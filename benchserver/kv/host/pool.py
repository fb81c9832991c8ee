"""A KV pool in host memory: one shared segment a worker, seen through numpy.

Tensors lie one after the other, each on a page boundary and followed by a guard page of canary
bytes.  Every tensor is C-contiguous with its block axis as the spec has it, so a layer is an
array (planes, num_blocks, page bytes).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import NULL_BLOCKS, Window
from benchserver.kv.digest import chunk_digest
from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault, merge
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import TensorPlace, place_tensors
from benchserver.kv.pattern import (
    CANARY_BYTE,
    POISON_BYTE,
    REUSED_MASK,
    U8,
    U64,
    GroupPattern,
    is_filled_with,
)
from benchserver.kv.pool import WHOLE, Share
from benchserver.kv.verify import Candidate, bad_pages, same_bytes, verify_filled
from benchserver.kv.wrongpages import FaultDescriber, PagePlace, check_fillable, check_skipped
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle
from shapespec import (
    ShapeSpec,
    element_strides,
    page_bytes,
    planes,
    tensor_shape,
)

_EVERY_BYTE = 0x0101010101010101


class HostPool:
    """One rank's pool; see `benchserver.kv.pool.KvPool`.

    The segment belongs to the pool, and has the name `shm_name` only while it is exported:
    measured safe on 0.5.6, and nothing is left in /dev/shm even after SIGKILL.  `content_rank` is
    the rank whose content the pages hold: the worker's own, or 0 for MLA.
    """

    asynchronous = False
    """When a server's reply comes, it has copied: there is no event to wait for."""

    def __init__(
        self,
        segment: SharedSegment,
        spec: ShapeSpec,
        patterns: Sequence[GroupPattern],
        *,
        shm_name: str,
        content_rank: int,
        ranks: int,
        blocks_per_chunk: int,
        cancel: threading.Event,
    ) -> None:
        self._segment = segment
        self._shm_name = shm_name
        self._spec = spec
        self._patterns = patterns
        self._content_rank = content_rank
        self._blocks_per_chunk = blocks_per_chunk
        self._cancel = cancel
        self._faults = FaultDescriber(
            patterns=patterns,
            content_rank=content_rank,
            ranks=ranks,
            blocks_per_chunk=blocks_per_chunk,
        )
        self._places, _ = place_tensors(spec)
        memory = np.frombuffer(segment.buffer, dtype=np.uint8)
        self._layers = [self._layer_view(memory, place) for place in self._places]
        self._guards = self._guard_views(memory)
        for guard in self._guards:
            guard.fill(CANARY_BYTE)
        for layer in self._layers:
            layer[:, :NULL_BLOCKS].fill(CANARY_BYTE)

    def _layer_view(self, memory: U8, place: TensorPlace) -> U8:
        group = self._spec.groups[place.group]
        flat = memory[place.offset : place.offset + place.nbytes]
        return flat.reshape(planes(group), group.num_blocks, page_bytes(group))

    def _guard_views(self, memory: U8) -> list[U8]:
        starts = [0, *(place.offset + place.nbytes for place in self._places)]
        ends = [*(place.offset for place in self._places), memory.size]
        return [memory[start:end] for start, end in zip(starts, ends, strict=True)]

    @contextlib.contextmanager
    def exported(self, *, hnd: bool = False) -> Iterator[Sequence[CpuShmHandle]]:
        """Name the segment, and return every layer's descriptor; at the end the name is gone.

        Raises FatalError if the name cannot be given.
        """
        self._segment.link(self._shm_name)
        try:
            yield self._handles(hnd=hnd)
        finally:
            self._segment.unlink()

    def _handles(self, *, hnd: bool) -> list[CpuShmHandle]:
        handles: list[CpuShmHandle] = []
        for place in self._places:
            group = self._spec.groups[place.group]
            handles.append(
                CpuShmHandle(
                    shm_name=f"/{self._shm_name}",
                    nbytes=self._segment.nbytes,
                    dtype=group.dtype.name,
                    shape=tensor_shape(group, hnd=hnd),
                    stride=element_strides(group, hnd=hnd),
                    storage_offset=place.offset // group.dtype.item_bytes,
                )
            )
        return handles

    def record_event(self) -> bytes:
        """Return what stands for an event: our writes are done when their methods return."""
        return CPU_EVENT_STUB

    def wait_event(self, handle: bytes, *, timeout_ns: int) -> None:
        """Return at once, whatever the handle: the data has landed when the reply comes."""

    def release(self) -> None:
        """Take our name out of /dev/shm and free the memory, at once."""
        self._segment.release()

    def close(self) -> None:
        """Drop the views and give the memory back."""
        self._layers.clear()
        self._guards.clear()
        self._segment.close()

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Write the content of the chunks into the window's blocks, in a share of the layers."""
        check_fillable(window)
        order = _columns_by_position(window)
        first, step = share
        for place, pages in zip(self._places[first::step], self._layers[first::step], strict=True):
            self._check_cancel()
            pattern, keys = self._keys(place, digests)
            part = pages[:, window.first : window.first + window.count].view(pattern.dtype)
            key_words = pattern.key_words(keys[:, order])
            np.bitwise_xor(pattern.words, key_words, out=part)

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Overwrite the blocks with poison, the canaries with canary bytes, in such a share."""
        first, step = share
        for pages in self._layers[first::step]:
            self._check_cancel()
            pages[:, window.first : window.first + window.count].fill(POISON_BYTE)
            for block in window.canaries:
                pages[:, block].fill(CANARY_BYTE)

    def reuse(self, window: Window, share: Share = WHOLE) -> None:
        """XOR every byte of the window's blocks with REUSED_MASK, in this share of the layers."""
        check_fillable(window)
        first, step = share
        for place, pages in zip(self._places[first::step], self._layers[first::step], strict=True):
            self._check_cancel()
            words = self._patterns[place.group].dtype
            part = pages[:, window.first : window.first + window.count].view(words)
            np.bitwise_xor(part, _reused_word(words), out=part)

    def verify_reused(
        self, window: Window, digests: Sequence[int], candidates: Sequence[Candidate]
    ) -> Evidence:
        """Compare every page of blocks that `reuse` was called for with its XORed pattern."""
        return merge(
            self._verify_layer(place, pages, window, digests, candidates, reused=True)
            for place, pages in zip(self._places, self._layers, strict=True)
        )

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
        return merge(
            self._verify_layer(place, pages, window, digests, candidates, skipped=skipped)
            for place, pages in zip(self._places, self._layers, strict=True)
        )

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
        return merge(
            self._skipped_layer(place, pages, window, candidates, skipped)
            for place, pages in zip(self._places, self._layers, strict=True)
        )

    def _skipped_layer(
        self,
        place: TensorPlace,
        pages: U8,
        window: Window,
        candidates: Sequence[Candidate],
        skipped: int,
    ) -> Evidence:
        self._check_cancel()
        poison = np.full(pages.shape[2], POISON_BYTE, dtype=np.uint8)
        wrong = [
            (plane, column)
            for column, block in enumerate(window.block_ids[:skipped])
            for plane in range(pages.shape[0])
            if not same_bytes(pages[plane, block], poison)
        ]
        checked = skipped * pages.shape[0]
        first = None
        if wrong:
            where, seen = self._wrong_page(place, pages, window, wrong[0])
            first = self._faults.skipped(where, window, seen, candidates)
        return Evidence(
            kind=EvidenceKind.MISMATCH if wrong else EvidenceKind.MATCH,
            pages=checked,
            bad_pages=len(wrong),
            checked_bytes=checked * pages.shape[2],
            first=first,
        )

    def _verify_layer(
        self,
        place: TensorPlace,
        pages: U8,
        window: Window,
        digests: Sequence[int],
        candidates: Sequence[Candidate],
        *,
        skipped: int = 0,
        reused: bool = False,
    ) -> Evidence:
        self._check_cancel()
        pattern, keys = self._keys(place, digests)
        if reused:
            keys = keys ^ _reused_word(np.uint64)
        checked = (len(window.block_ids) - skipped) * pages.shape[0]
        wrong = self._wrong_pages(pattern, pages, window, keys, skipped)
        if not wrong:
            return Evidence(
                kind=EvidenceKind.MATCH, pages=checked, checked_bytes=checked * pages.shape[2]
            )
        untouched = len(wrong) == checked and all(
            is_filled_with(pages[plane, window.block_ids[column]], POISON_BYTE)
            for plane, column in wrong
        )
        where, seen = self._wrong_page(place, pages, window, wrong[0])
        return Evidence(
            kind=EvidenceKind.UNTOUCHED if untouched else EvidenceKind.MISMATCH,
            pages=checked,
            bad_pages=len(wrong),
            checked_bytes=checked * pages.shape[2],
            first=self._faults.content(where, window, digests, seen, candidates, reused=reused),
        )

    @staticmethod
    def _wrong_pages(
        pattern: GroupPattern, pages: U8, window: Window, keys: U64, skipped: int
    ) -> list[tuple[int, int]]:
        """Return (plane, column of the block table) of wrong pages, lowest column first."""
        words = pages[:, window.first : window.first + window.count].view(pattern.dtype)
        if not window.canaries and not skipped:
            order = _columns_by_position(window)
            found = bad_pages(words, pattern, keys[:, order])
            return sorted(((p, int(order[c])) for p, c in found), key=lambda item: item[1])
        # Other blocks lie between: check each run of neighbouring block-table entries.
        ids = enumerate(window.block_ids[skipped:], skipped)
        column_at = {block - window.first: column for column, block in ids}
        wrong: list[tuple[int, int]] = []
        for start, end in _runs(sorted(column_at)):
            columns = [column_at[position] for position in range(start, end)]
            found = bad_pages(words[:, start:end], pattern, keys[:, columns])
            wrong.extend((plane, columns[c]) for plane, c in found)
        return sorted(wrong, key=lambda item: item[1])

    @staticmethod
    def _wrong_page(
        place: TensorPlace, pages: U8, window: Window, where: tuple[int, int]
    ) -> tuple[PagePlace, U8]:
        """Return the place and the bytes of a page, at a plane and a column of the table."""
        plane, column = where
        found = PagePlace(group=place.group, layer=place.layer, plane=plane, column=column)
        return found, pages[plane, window.block_ids[column]]

    def verify_canaries(self, window: Window) -> Evidence:
        """Look at the window's canaries, the null block and the guards between the tensors."""
        blocks = [*range(NULL_BLOCKS), *window.canaries]
        parts: list[Evidence] = []
        for place, pages in zip(self._places, self._layers, strict=True):
            self._check_cancel()
            parts.append(self._layer_canaries(place, pages, blocks))
        parts.extend(self._guard_evidence(index) for index in range(len(self._guards)))
        return merge(parts)

    def _layer_canaries(self, place: TensorPlace, pages: U8, blocks: list[int]) -> Evidence:
        rows = pages[:, blocks].reshape(-1, pages.shape[2])

        def describe(row: int) -> PageFault:
            plane, index = divmod(row, len(blocks))
            return self._canary_fault(place, plane, blocks[index], rows[row])

        return verify_filled(rows, CANARY_BYTE, describe)

    def _canary_fault(self, place: TensorPlace, plane: int, block_id: int, seen: U8) -> PageFault:
        return self._faults.canary(
            group=place.group, layer=place.layer, plane=plane, block_id=block_id, seen=seen
        )

    def _guard_evidence(self, index: int) -> Evidence:
        guard = self._guards[index].reshape(1, -1)
        place = self._places[max(0, index - 1)]
        return verify_filled(
            guard, CANARY_BYTE, lambda row: self._canary_fault(place, 0, -1, guard[row])
        )

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of one chunk's blocks, as the server's API defines it."""
        widen = [self._spec.groups[p.group].dtype.name == "bfloat16" for p in self._places]
        return chunk_digest(self._layers, widen, block_ids, self._cancel)

    def gather_chunk(
        self, group: int, block_ids: Sequence[int], out: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk of a group into `out`, laid out [plane][layer][token][hidden], flat."""
        views = self._group_layers(group)
        target = out.reshape(views[0].shape[0], len(views), len(block_ids), views[0].shape[2])
        ids = np.asarray(block_ids, dtype=np.intp)
        for index, pages in enumerate(views):
            for plane in range(pages.shape[0]):
                # In any mode but "raise", `out` is written without a copy between.
                np.take(pages[plane], ids, axis=0, out=target[plane, index], mode="clip")

    def scatter_chunk(
        self, group: int, block_ids: Sequence[int], data: npt.NDArray[np.uint8]
    ) -> None:
        """Copy one chunk object, laid out as `gather_chunk` does, into the blocks."""
        views = self._group_layers(group)
        source = data.reshape(views[0].shape[0], len(views), len(block_ids), views[0].shape[2])
        ids = np.asarray(block_ids, dtype=np.intp)
        for index, pages in enumerate(views):
            for plane in range(pages.shape[0]):
                pages[plane, ids] = source[plane, index]

    def _group_layers(self, group: int) -> list[U8]:
        return [
            pages
            for place, pages in zip(self._places, self._layers, strict=True)
            if place.group == group
        ]

    def _keys(self, place: TensorPlace, digests: Sequence[int]) -> tuple[GroupPattern, U64]:
        pattern = self._patterns[place.group]
        keys = pattern.page_keys(
            digests,
            rank=self._content_rank,
            layer=place.layer,
            blocks_per_chunk=self._blocks_per_chunk,
        )
        return pattern, keys

    def _check_cancel(self) -> None:
        if self._cancel.is_set():
            raise WorkCancelledError


def _reused_word(words: type[np.uint64 | np.uint8]) -> np.uint64 | np.uint8:
    """Return REUSED_MASK in every byte of a word."""
    whole: np.uint64 = np.uint64(REUSED_MASK * _EVERY_BYTE)
    byte: np.uint8 = np.uint8(REUSED_MASK)
    return whole if words is np.uint64 else byte


def _columns_by_position(window: Window) -> npt.NDArray[np.intp]:
    """Return, for each block id of a window without canaries, its column in the block table."""
    order = np.empty(window.count, dtype=np.intp)
    order[np.asarray(window.block_ids) - window.first] = np.arange(window.count)
    return order


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return maximal runs `[start, end)` of consecutive positions, in order."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return runs
