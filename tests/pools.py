"""Pools to test on the CPU, what their bytes must be, and what a bad server does to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from benchserver.kv.blocks import Window, lease_plan
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import Evidence
from benchserver.kv.host.pool import HostPool
from benchserver.kv.host.segment import SharedSegment
from benchserver.kv.layout import place_tensors
from benchserver.kv.owners import Candidate
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE
from benchserver.kv.pool import KvPool
from benchserver.kv.verify import verify, verify_canaries, verify_skipped
from benchserver.shmnames import segment_name
from shapespec import (
    ShapeSpec,
    layer_indices,
    page_bytes,
    parse_shape_spec,
    planes,
)

U8 = npt.NDArray[np.uint8]

ROOT = bytes(range(16))
BLOCKS = 24
BLOCKS_PER_CHUNK = 2
CHUNKS = 4
DIGESTS = (11, 2**64 - 22, 33, 2**63)
OTHER = (55, 66, 77, 88)
PAST = (Candidate(label="seq 1", digests=OTHER), Candidate(label="seq 2", digests=DIGESTS))

CLASSIC = "(2,24,2,1,4):float16:2"
SPECS = (
    CLASSIC,
    "(1,24,2,1,8):bfloat16:3",
    "(2,24,4,2,8):bfloat16:2",
    "(1,24,1,1,132):uint8:1",
    "(2,24,1,1,3):int8:2",
    "(2,24,2,2,4):float32:1;(1,24,2,1,292):uint8:2",
    "(2,24,1,1,5):uint8:2;(1,24,1,3,43):bfloat16:2;(2,24,1,2,4):float16:3",
    "(2,24,2,1,4):float8_e4m3fn:2;(1,24,2,1,5):float8_e5m2:1",
    "(2,24,16,4,70):bfloat16:3",
)
"""Pages of 3 to 8960 bytes, whole 8-byte words or not, groups of both sorts, bfloat16 of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOnTest:
    """A pool, and its bytes as the test sees them: all of them, guards too."""

    pool: KvPool
    read: Callable[[], U8]
    """Return a copy of the memory."""

    write: Callable[[U8], None]
    """Overwrite all of the memory."""


OpenPool = Callable[..., AbstractContextManager[PoolOnTest]]
"""Called with a spec's text, and `content_rank`, `ranks`, `cancel` where they matter."""


def content_of(spec: ShapeSpec, rank: int = 0, ranks: int = 1) -> PoolContent:
    """Return what a rank's pool must hold in all these tests."""
    patterns = group_patterns(ROOT, spec, BLOCKS_PER_CHUNK)
    return PoolContent(spec=spec, patterns=patterns, rank=rank, ranks=ranks)


@contextlib.contextmanager
def open_host(
    text: str,
    *,
    content_rank: int = 0,
    ranks: int = 1,
    cancel: threading.Event | None = None,
) -> Iterator[PoolOnTest]:
    """Open a pool in host memory."""
    spec = parse_shape_spec(text)
    segment = SharedSegment(place_tensors(spec)[1], threading.Event())
    pool = HostPool(
        segment,
        content_of(spec, content_rank, ranks),
        shm_name=segment_name("00fe", content_rank),
        cancel=threading.Event() if cancel is None else cancel,
    )

    def read() -> U8:
        data: U8 = np.frombuffer(segment.buffer, np.uint8).copy()
        return data

    def write(data: U8) -> None:
        np.frombuffer(segment.buffer, np.uint8)[:] = data

    try:
        yield PoolOnTest(pool=pool, read=read, write=write)
    finally:
        pool.close()


class Stub:
    """Memory and events of a CudaPool on torch's CPU device."""

    stream = None

    def __init__(self, nbytes: int) -> None:
        import torch

        self.tensor = torch.zeros(nbytes, dtype=torch.uint8)
        self.device = self.tensor.device
        self.ended: list[str] = []

    def release(self) -> None:
        self.ended.append("release")

    def close(self) -> None:
        self.ended.append("close")


@contextlib.contextmanager
def open_on_cpu(
    text: str,
    *,
    content_rank: int = 0,
    ranks: int = 1,
    cancel: threading.Event | None = None,
    kernels: str = "torch",
) -> Iterator[PoolOnTest]:
    """Open a CudaPool on torch's CPU device."""
    from benchserver.kv.gpu.pool import CudaPool

    spec = parse_shape_spec(text)
    memory = Stub(place_tensors(spec)[1])
    pool = CudaPool(
        content_of(spec, content_rank, ranks),
        memory=cast(Any, memory),
        events=cast(Any, memory),
        cancel=threading.Event() if cancel is None else cancel,
        kernels=cast(Any, kernels),
    )
    flat: U8 = memory.tensor.numpy()

    def write(data: U8) -> None:
        flat[:] = data

    try:
        yield PoolOnTest(pool=pool, read=flat.copy, write=write)
    finally:
        pool.close()


def plan(turn: int = 0) -> tuple[Window, Window]:
    """Return source and destination of four chunks of two blocks; one canary lies inside."""
    made = lease_plan(
        num_blocks=BLOCKS,
        request_blocks=CHUNKS * BLOCKS_PER_CHUNK,
        seed=1,
        turn=turn,
        rank=0,
    )
    assert len(made.destination.canaries) == 3
    return made.source, made.destination


def layers_of(memory: U8, text: str) -> list[U8]:
    """Return every layer as a view (planes, blocks, page bytes), found by place alone."""
    spec = parse_shape_spec(text)
    return [
        memory[p.offset : p.offset + p.nbytes].reshape(
            planes(spec.groups[p.group]), BLOCKS, page_bytes(spec.groups[p.group])
        )
        for p in place_tensors(spec)[0]
    ]


def plane_name(text: str, layer: int, plane: int) -> str:
    """Return what a plane of a layer is called."""
    spec = parse_shape_spec(text)
    (group,) = (
        g for g, layers in zip(spec.groups, layer_indices(spec), strict=True) if layer in layers
    )
    return "KV"[plane] if planes(group) == 2 else "latent"


def expected_page(
    spec: ShapeSpec, layer: int, plane: int, digest: int, block: int, rank: int = 0
) -> bytes:
    """Return a page's content, by the pattern's own function."""
    group = next(i for i, layers in enumerate(layer_indices(spec)) if layer in layers)
    pattern = group_patterns(ROOT, spec, BLOCKS_PER_CHUNK)[group]
    keys = pattern.page_keys([digest], rank=rank, layer=layer)
    return pattern.expected_page(int(keys[plane, block])).tobytes()


def written(text: str, window: Window, rank: int = 0) -> dict[tuple[int, int, int], bytes]:
    """Return what (layer, plane, block id) must hold after a fill of the window."""
    spec = parse_shape_spec(text)
    return {
        (layer, plane, block_id): expected_page(
            spec,
            layer,
            plane,
            DIGESTS[column // BLOCKS_PER_CHUNK],
            column % BLOCKS_PER_CHUNK,
            rank,
        )
        for index, layers in enumerate(layer_indices(spec))
        for layer in layers
        for plane in range(planes(spec.groups[index]))
        for column, block_id in enumerate(window.block_ids)
    }


def restored(tested: PoolOnTest, text: str, window: Window, skipped: int = 0) -> U8:
    """Return the memory as a good RETRIEVE leaves it that skips the first blocks of its table."""
    tested.pool.poison(window)
    memory = tested.read()
    layers = layers_of(memory, text)
    kept = set(window.block_ids[:skipped])
    for (layer, plane, block_id), page in written(text, window).items():
        if block_id not in kept:
            layers[layer][plane, block_id] = np.frombuffer(page, np.uint8)
    return memory


def looks(pool: KvPool, window: Window, skipped: int) -> list[Evidence]:
    """Return all evidence that a pool can give of a window, of a RETRIEVE that skipped blocks."""
    return [
        verify(pool, window, DIGESTS, PAST),
        verify(pool, window, DIGESTS, PAST, skipped=skipped),
        verify_skipped(pool, window, PAST, skipped=skipped),
        verify_canaries(pool, window),
    ]


def damage(data: st.DataObject, memory: U8, layers: list[U8]) -> None:
    """Do to the memory what a bad server would."""
    layer = data.draw(st.integers(0, len(layers) - 1))
    pages = layers[layer]
    plane = data.draw(st.integers(0, pages.shape[0] - 1))
    block = data.draw(st.integers(0, BLOCKS - 1))
    other = data.draw(st.integers(0, BLOCKS - 1))
    kind = data.draw(st.sampled_from(["byte", "anywhere", "swap", "repeat", "fill", "tail"]))
    if kind == "byte":
        offset = data.draw(st.integers(0, pages.shape[2] - 1))
        pages[plane, block, offset] ^= data.draw(st.integers(1, 255))
    elif kind == "anywhere":
        memory[data.draw(st.integers(0, memory.size - 1))] ^= data.draw(st.integers(1, 255))
    elif kind == "swap":
        pages[plane, [block, other]] = pages[plane, [other, block]]
    elif kind == "repeat":
        pages[:, block] = pages[:, other]
    elif kind == "fill":
        pages[plane, block] = data.draw(st.sampled_from([0, POISON_BYTE, CANARY_BYTE, 255]))
    else:
        pages[plane, block, data.draw(st.integers(0, pages.shape[2] - 1)) :] = POISON_BYTE
