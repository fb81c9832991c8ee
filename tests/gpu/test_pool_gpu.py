"""CudaPool in the memory of a GPU: the suite over pools, with Triton kernels and without.

And what only a device shows: that nothing waits that must not, and that large pools are reached to
their end.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.content import PoolContent, group_patterns
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.gpu.choice import Kernels
from benchserver.kv.layout import place_tensors
from benchserver.kv.verify import verify, verify_canaries
from shapespec import parse_shape_spec
from tests.pools import BLOCKS_PER_CHUNK, CLASSIC, DIGESTS, ROOT, U8, PoolOnTest, plan
from tests.poolsuite import PoolSuite

pytestmark = pytest.mark.gpu


@contextlib.contextmanager
def open_on_gpu(
    text: str,
    *,
    content_rank: int = 0,
    ranks: int = 1,
    cancel: threading.Event | None = None,
    kernels: Kernels = "auto",
    blocks_per_chunk: int = BLOCKS_PER_CHUNK,
) -> Iterator[PoolOnTest]:
    """Open a pool on the first device; skips where Triton was asked for and does not work."""
    import torch

    from benchserver.kv.gpu.events import CudaEvents
    from benchserver.kv.gpu.memory import CudaMemory
    from benchserver.kv.gpu.pool import CudaPool

    spec = parse_shape_spec(text)
    memory = CudaMemory(place_tensors(spec)[1], device=0, ipc="torch")
    try:
        stream: Any = torch.cuda.Stream(memory.device)
        pool = CudaPool(
            PoolContent(
                spec=spec,
                patterns=group_patterns(ROOT, spec, blocks_per_chunk),
                rank=content_rank,
                ranks=ranks,
            ),
            memory=memory,
            events=CudaEvents(memory.device, stream),
            cancel=threading.Event() if cancel is None else cancel,
            kernels=kernels,
        )
    except FatalError as error:
        memory.close()
        if kernels == "triton" and "Triton" in str(error):
            pytest.skip(str(error))
        raise

    def read() -> U8:
        with torch.cuda.stream(stream):
            data: U8 = memory.tensor.cpu().numpy()
        return data

    def write(data: U8) -> None:
        with torch.cuda.stream(stream):
            memory.tensor.copy_(torch.from_numpy(data))
        stream.synchronize()

    try:
        yield PoolOnTest(pool=pool, read=read, write=write)
    finally:
        pool.close()


class TestCudaPoolInKernels(PoolSuite):
    open = staticmethod(partial(open_on_gpu, kernels="triton"))
    max_examples = 25


class TestCudaPoolInTorchOperations(PoolSuite):
    open = staticmethod(partial(open_on_gpu, kernels="torch"))
    max_examples = 25


def test_kernels_are_taken_where_they_work() -> None:
    with open_on_gpu(CLASSIC) as tested, open_on_gpu(CLASSIC, kernels="triton"):
        assert getattr(tested.pool, "kernels_note") == ""  # noqa: B009 - not in the interface


@pytest.mark.parametrize("kernels", ["triton", "torch"])
def test_writing_and_events_do_not_wait_for_the_device(kernels: Kernels) -> None:
    import torch

    source, destination = plan()
    with open_on_gpu(CLASSIC, kernels=kernels) as tested:
        pool: Any = tested.pool
        works: list[Callable[[], object]] = [
            lambda: pool.fill(source, DIGESTS),
            lambda: pool.poison(destination),
            pool.record_event,
        ]
        for work in works:
            work()  # a first call loads, compiles and pins
        pool.stream.synchronize()
        for work in works:
            with torch.cuda.stream(pool.stream):
                torch.cuda._sleep(2_000_000_000)  # about a second
            work()
            assert not pool.stream.query(), "it waited for the device"
            pool.stream.synchronize()
        assert verify(pool, source, DIGESTS, ()).kind is EvidenceKind.MATCH


def test_a_comparison_and_a_digest_come_behind_a_late_fill() -> None:
    import torch

    source, _ = plan()
    table = source.block_ids[:2]
    with open_on_gpu(CLASSIC) as tested:
        pool: Any = tested.pool
        pool.fill(source, DIGESTS)
        expected = pool.chunk_digest(table)
        looks: list[tuple[Callable[[], object], object]] = [
            (lambda: verify(pool, source, DIGESTS, ()).kind, EvidenceKind.MATCH),
            (lambda: pool.chunk_digest(table), expected),
        ]
        for look, good in looks:
            pool.poison(source)
            pool.stream.synchronize()
            with torch.cuda.stream(pool.stream):
                torch.cuda._sleep(500_000_000)
            pool.fill(source, DIGESTS)
            assert look() == good


@pytest.mark.parametrize("kernels", ["triton", "torch"])
def test_a_pool_of_more_than_2_to_the_31_words(kernels: Kernels) -> None:
    """32 layers x 2 planes x 9216 pages of 32 KiB are 18 GiB: 2.4 * 10^9 words."""
    text = "(2,9216,16,8,128):float16:32"
    spec = parse_shape_spec(text)
    (pattern,) = group_patterns(ROOT, spec, 16)
    ids = (9214, 9200, *range(9201, 9214), 9215)
    window = Window(first=9200, count=16, block_ids=ids, canaries=())
    with open_on_gpu(text, kernels=kernels, blocks_per_chunk=16) as tested:
        pool: Any = tested.pool
        pool.fill(window, DIGESTS[:1])
        assert verify(pool, window, DIGESTS[:1], ()).kind is EvidenceKind.MATCH
        md5 = hashlib.md5()
        for layer in range(32):
            keys = pattern.page_keys(DIGESTS[:1], rank=0, layer=layer)
            for plane in range(2):
                for column in range(16):
                    md5.update(pattern.expected_page(int(keys[plane, column])).data)
        assert pool.chunk_digest(ids) == md5.hexdigest()
        chunk = np.empty(32 * 2 * 16 * (32 << 10), np.uint8)
        pool.gather_chunk(0, ids, chunk)
        chunk[-1] ^= 0x80  # the last byte of layer 31, plane V, column 15
        pool.scatter_chunk(0, ids, chunk)
        seen = verify(pool, window, DIGESTS[:1], ())
        assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, 1)
        assert seen.first is not None
        place = seen.first.place
        assert (place.layer, place.plane, place.block) == (31, "V", 15)
        assert (seen.first.block_id, seen.first.offset) == (9215, (32 << 10) - 1)
        assert verify_canaries(pool, window).kind is EvidenceKind.MATCH


def test_two_ranks_have_their_own_content() -> None:
    source, _ = plan()
    open_rank = partial(open_on_gpu, CLASSIC, ranks=2)
    with open_rank(content_rank=0) as first, open_rank(content_rank=1) as second:
        for tested in (first, second):
            tested.pool.fill(source, DIGESTS)
        second.write(first.read())
        seen = verify(second.pool, source, DIGESTS, ())
    assert (seen.kind, seen.bad_pages) == (EvidenceKind.MISMATCH, seen.pages)
