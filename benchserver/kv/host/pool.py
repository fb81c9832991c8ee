"""A KV pool in host memory: one shared segment a worker, seen through numpy.

Tensors lie one after the other, each on a page boundary and followed by a guard page of canary
bytes.  Every tensor is C-contiguous with its block axis as the spec has it, so a layer is an
array (planes, num_blocks, page bytes).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchserver.errors import WorkCancelledError
from benchserver.kv.blocks import NULL_BLOCKS, Window, check_fillable
from benchserver.kv.content import PoolContent
from benchserver.kv.digest import chunk_digest
from benchserver.kv.host.compare import not_filled, table_runs, wrong_in_runs
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import TensorPlace, guard_spans, place_tensors
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, REUSED_MASK, U8, GroupPattern
from benchserver.kv.pool import WHOLE, Compared, Places, Share
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle
from shapespec import element_strides, page_bytes, planes, tensor_shape

_EVERY_BYTE = 0x0101010101010101


class HostPool:
    """One rank's pool; see `benchserver.kv.pool.KvPool`.

    The segment belongs to the pool, and has the name `shm_name` only while it is exported:
    measured safe on 0.5.6, and nothing is left in /dev/shm even after SIGKILL.
    """

    asynchronous = False
    """When a server's reply comes, it has copied: there is no event to wait for."""

    def __init__(
        self,
        segment: SharedSegment,
        content: PoolContent,
        *,
        shm_name: str,
        cancel: threading.Event,
    ) -> None:
        self.content = content
        self._segment = segment
        self._shm_name = shm_name
        self._cancel = cancel
        self._places, _ = place_tensors(content.spec)
        memory = np.frombuffer(segment.buffer, dtype=np.uint8)
        self._layers = [self._layer_view(memory, place) for place in self._places]
        spans = guard_spans(self._places, memory.size)
        self._guards = [memory[start:end] for start, end in spans]
        for guard in self._guards:
            guard.fill(CANARY_BYTE)
        for layer in self._layers:
            layer[:, :NULL_BLOCKS].fill(CANARY_BYTE)

    def _layer_view(self, memory: U8, place: TensorPlace) -> U8:
        group = self.content.spec.groups[place.group]
        flat = memory[place.offset : place.offset + place.nbytes]
        return flat.reshape(planes(group), group.num_blocks, page_bytes(group))

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
            group = self.content.spec.groups[place.group]
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

    # Writing

    def fill(self, window: Window, digests: Sequence[int], share: Share = WHOLE) -> None:
        """Write the content of the chunks into the window's blocks, in a share of the layers."""
        check_fillable(window)
        (run,) = table_runs(window)
        for layer, pattern, pages in self._each_layer(share):
            keys = self.content.keys(layer, digests)
            part = pages[:, run.blocks].view(pattern.dtype)
            np.bitwise_xor(pattern.words, pattern.key_words(keys[:, run.columns]), out=part)

    def poison(self, window: Window, share: Share = WHOLE) -> None:
        """Overwrite the blocks with poison, the canaries with canary bytes, in this share."""
        for _, _, pages in self._each_layer(share):
            pages[:, window.first : window.first + window.count].fill(POISON_BYTE)
            for block in window.canaries:
                pages[:, block].fill(CANARY_BYTE)

    def reuse(self, window: Window, share: Share = WHOLE) -> None:
        """XOR every byte of the window's blocks with REUSED_MASK, in this share of the layers."""
        check_fillable(window)
        for _, pattern, pages in self._each_layer(share):
            part = pages[:, window.first : window.first + window.count].view(pattern.dtype)
            np.bitwise_xor(part, _reused_word(pattern.dtype), out=part)

    # Seeing

    def compare(
        self, window: Window, digests: Sequence[int], *, skipped: int = 0, reused: bool = False
    ) -> Compared:
        """Compare the blocks as they lie, `reused` ones with what `reuse` made of their content."""
        runs = table_runs(window, skipped)
        found: list[Places] = []
        for layer, pattern, pages in self._each_layer():
            keys = self.content.keys(layer, digests)
            if reused:
                keys = keys ^ _reused_word(np.uint64)
            found += _in_layer(layer, wrong_in_runs(pages, pattern, keys, runs))
        places = _together(found)
        places[:, 2] -= skipped
        return Compared(places=places, reused=reused)

    def not_filled(self, block_ids: Sequence[int], byte: int) -> Places:
        """Return the pages of the blocks that hold anything else than `byte`."""
        found: list[Places] = []
        for layer, _, pages in self._each_layer():
            found += _in_layer(layer, not_filled(pages, block_ids, byte))
        return _together(found)

    def wrong_guards(self) -> Mapping[int, U8]:
        """Return the bytes of every guard that was written, by its number."""
        return {
            number: guard
            for number, guard in enumerate(self._guards)
            if not (guard == CANARY_BYTE).all()
        }

    def page(self, layer: int, plane: int, block_id: int) -> U8:
        """Return the bytes of one page."""
        page: U8 = self._layers[layer][plane, block_id]
        return page

    def _each_layer(self, share: Share = WHOLE) -> Iterator[tuple[int, GroupPattern, U8]]:
        """Yield each layer of a share: its number, pattern and pages; until the run is cancelled.

        Raises ValueError once the pool is closed.
        """
        first, step = share
        layers = zip(self._places[first::step], self._layers[first::step], strict=True)
        for place, pages in layers:
            if self._cancel.is_set():
                raise WorkCancelledError
            yield place.layer, self.content.patterns[place.group], pages

    # Chunks

    def chunk_digest(self, block_ids: Sequence[int]) -> str:
        """Return the MD5 of one chunk's blocks, as the server's API defines it."""
        widen = [self.content.spec.groups[p.group].dtype.name == "bfloat16" for p in self._places]
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


def _reused_word(words: type[np.uint64 | np.uint8]) -> np.uint64 | np.uint8:
    """Return REUSED_MASK in every byte of a word."""
    whole: np.uint64 = np.uint64(REUSED_MASK * _EVERY_BYTE)
    byte: np.uint8 = np.uint8(REUSED_MASK)
    return whole if words is np.uint64 else byte


def _in_layer(layer: int, wrong: npt.NDArray[np.intp]) -> list[Places]:
    """Return pages (plane, column) of one layer as pages of the pool, if there are any."""
    return [np.insert(wrong, 0, layer, axis=1)] if len(wrong) else []


def _together(parts: Sequence[Places]) -> Places:
    return np.concatenate([np.empty((0, 3), dtype=np.intp), *parts])
