"""What a CudaPool does beside the suite over pools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from benchserver.kv.blocks import Window
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.gpu.pool import CudaPool
from benchserver.kv.layout import place_tensors
from benchserver.kv.pool import EventError, KvPool
from benchserver.kv.verify import verify, verify_canaries, verify_skipped
from protocol.handles import CudaRawHandle
from shapespec import parse_shape_spec
from tests.pools import DIGESTS, Stub, content_of, open_on_cpu, plan

TEXT = "(2,24,2,3,4):float16:2;(1,24,2,1,8):bfloat16:1"
SPEC = parse_shape_spec(TEXT)


class Recorder(Stub):
    """Memory that says what it was asked for, and events that say what they saw."""

    def handle(
        self, *, dtype: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
    ) -> CudaRawHandle:
        nbytes = int(np.prod(shape)) * 2
        return CudaRawHandle(
            ipc_handle=bytes(64),
            alloc_offset=offset,
            nbytes=nbytes,
            dtype=dtype,
            shape=shape,
            stride=stride,
            device_uuid="uuid",
        )

    def record(self) -> bytes:
        return b"e" * 64

    def wait(self, handle: bytes, timeout_ns: int) -> None:
        raise EventError(f"{handle!r} {timeout_ns}")


def pool_in(memory: Stub) -> CudaPool:
    return CudaPool(
        content_of(SPEC),
        memory=cast(Any, memory),
        events=cast(Any, memory),
        cancel=threading.Event(),
    )


@pytest.mark.torch
def test_descriptors_name_every_layers_place() -> None:
    pool = pool_in(Recorder(place_tensors(SPEC)[1]))
    places, _ = place_tensors(SPEC)
    with pool.exported() as handles:
        described = [cast(CudaRawHandle, handle) for handle in handles]
    assert [handle.alloc_offset for handle in described] == [place.offset for place in places]
    assert [handle.nbytes for handle in described] == [place.nbytes for place in places]
    assert (described[0].dtype, described[2].dtype) == ("float16", "bfloat16")
    assert described[0].shape == (2, 24, 2, 3, 4)
    assert described[0].stride == (576, 24, 12, 4, 1)
    assert described[2].shape == (24, 2, 8)
    with pool.exported(hnd=True) as handles:
        assert handles[0].shape == (2, 24, 3, 2, 4)


@pytest.mark.torch
def test_events_are_those_it_was_given() -> None:
    memory = Recorder(place_tensors(SPEC)[1])
    pool: KvPool = pool_in(memory)
    assert pool.asynchronous is True
    assert pool.record_event() == b"e" * 64
    with pytest.raises(EventError, match="b'xy' 5"):
        pool.wait_event(b"xy", timeout_ns=5)
    pool.release()
    pool.close()
    pool.close()
    assert memory.ended == ["release", "close"]


@pytest.mark.torch
def test_memory_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        pool_in(Stub(place_tensors(SPEC)[1] + 8))


@pytest.mark.torch
@pytest.mark.parametrize(
    "window",
    [
        Window(first=20, count=8, block_ids=tuple(range(20, 28)), canaries=()),
        Window(first=-1, count=8, block_ids=tuple(range(-1, 7)), canaries=()),
        Window(first=1, count=8, block_ids=(1, 2, 3, 4, 5, 6, 7, 9), canaries=()),
        Window(first=1, count=8, block_ids=(0, 2, 3, 4, 5, 6, 7, 8), canaries=()),
        Window(first=1, count=9, block_ids=tuple(range(1, 9)), canaries=(10,)),
    ],
)
def test_blocks_that_are_not_there_are_refused(window: Window) -> None:
    """A device would read or write whatever lies there."""
    with open_on_cpu(TEXT) as tested:
        before = tested.read().tobytes()
        works: list[Callable[[], object]] = [
            lambda: tested.pool.poison(window),
            lambda: verify_skipped(tested.pool, window, (), skipped=1),
            lambda: verify_canaries(tested.pool, window),
        ]
        if not window.canaries:  # else the blocks of the table are all there
            works.append(lambda: tested.pool.fill(window, DIGESTS))
            works.append(lambda: verify(tested.pool, window, DIGESTS, ()))
        for work in works:
            with pytest.raises(ValueError, match="of a pool of 24 blocks"):
                work()
        assert tested.read().tobytes() == before


@pytest.mark.torch
def test_digests_must_be_those_of_the_table() -> None:
    source, _ = plan()
    with open_on_cpu(TEXT) as tested:
        for work in (
            lambda: tested.pool.fill(source, DIGESTS[:3]),
            lambda: verify(tested.pool, source, DIGESTS[:3], ()),
        ):
            with pytest.raises(ValueError, match="3 chunks of 2 blocks, but a block table of 8"):
                work()


@pytest.mark.torch
@pytest.mark.parametrize("table", [(), (1, 24), (-1, 2)])
def test_chunks_of_blocks_that_are_not_there_are_refused(table: tuple[int, ...]) -> None:
    with open_on_cpu(TEXT) as tested:
        for work in (
            lambda: tested.pool.chunk_digest(table),
            lambda: tested.pool.gather_chunk(0, table, np.zeros(0, np.uint8)),
            lambda: tested.pool.scatter_chunk(0, table, np.zeros(0, np.uint8)),
        ):
            with pytest.raises(IndexError, match="of a pool of 24 blocks"):
                work()


@pytest.mark.torch
def test_a_closed_pool_proves_nothing() -> None:
    with open_on_cpu(TEXT) as tested:
        tested.pool.fill(plan()[0], DIGESTS)
        assert verify(tested.pool, plan()[0], DIGESTS, ()).kind is EvidenceKind.MATCH
        tested.pool.close()
        with pytest.raises(AttributeError):
            verify(tested.pool, plan()[0], DIGESTS, ())
