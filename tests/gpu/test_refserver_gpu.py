"""The embedded server's copies on a device, within one process: streams, pinned L1, their pace.

What two processes need for it (mapped memory, events) is tested with whole servers beside this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from benchserver.refserver.gpu.copies import tensor_over
from benchserver.refserver.gpu.device import pin, unpin, visible_devices
from benchserver.refserver.gpu.driver import OpenHandles
from benchserver.refserver.gpu.memory import ClientMemory, check_descriptor
from benchserver.refserver.gpu.stream import (
    CudaStream,
    Streams,
    Submitted,
    check_event_handle,
    wait_until,
)
from benchserver.refserver.gpu.work import DeviceWork
from benchserver.refserver.pages.checksums import HashedLayer, aggregate_digests
from benchserver.refserver.pages.layout import KvLayout, layout_of
from benchserver.refserver.pages.transfer import ObjectCopy, paged_view, store_objects
from benchserver.refserver.pages.transfer import tensor_over as array_over
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.arena import Arena, open_private
from protocol.handles import CpuShmHandle, CudaHandle, CudaRawHandle
from tests.cudastage import EVENT, cuda_handle

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

CHUNK, BS = 256, 16
SHAPE = (2, 64, BS, 8, 128)
LAYERS = 4
PACE_SHAPE = (2, 512, BS, 8, 128)
PACE_LAYERS = 16
PACE_CHUNKS = 30
WARM_UPS, ROUNDS = 2, 5
FLOOR = 0.6
"""Of the measured bandwidth of pinned copies: bytes / 55 GB/s on an H200, 19.5 ms for 1 GiB."""

DONE_WITHIN_NS = 30 * 10**9


class OwnStream(CudaStream):
    """A real stream; the client is this process, whose own events CUDA does not import."""

    def wait_for(self, handle: bytes) -> None:
        check_event_handle(handle)


@dataclass
class Rig:
    """A client and a server in one process."""

    work: DeviceWork
    layout: KvLayout
    stream: OwnStream
    handles: list[CudaHandle]
    flat: Any
    arena: Arena

    def copies(self, tables: Sequence[Sequence[int]], first_object: int = 0) -> list[ObjectCopy]:
        (nbytes,) = self.layout.group_bytes
        return [
            ObjectCopy(
                group=0,
                data=self.arena.view((first_object + i) * nbytes, nbytes),
                block_ids=tuple(ids),
            )
            for i, ids in enumerate(tables)
        ]

    def arrays(self) -> list[Any]:
        """Return a copy of every layer on the host."""
        host = self.flat.cpu().numpy()
        return [
            array_over(
                host,
                CpuShmHandle(
                    shm_name="s",
                    nbytes=h.nbytes,
                    dtype=h.dtype,
                    shape=h.shape,
                    stride=h.stride,
                    storage_offset=h.storage_offset,
                ),
            )
            for h in self.handles
        ]


def landed(submitted: Submitted) -> None:
    assert wait_until(submitted.is_done, stopping=threading.Event(), within_ns=DONE_WITHIN_NS)
    assert len(submitted.handle) == 64


def make_rig(shape: tuple[int, ...], layers: int, arena: Arena) -> Rig:
    """Register random memory, with a gap behind each layer as the bench has it."""
    import torch

    size = int(np.prod(shape)) + 2048
    handles = [
        cuda_handle(shape, offset=2048 + layer * size, storage_bytes=2 * (2048 + size * layers))
        for layer in range(layers)
    ]
    device = torch.device("cuda", 0)
    flat = torch.randint(0, 256, (handles[0].nbytes,), dtype=torch.uint8, device=device)
    storage = flat.untyped_storage()
    torch.cuda.synchronize()
    layout = layout_of(handles, {}, [], engine_type="vllm", chunk_size=CHUNK)
    stream = OwnStream(0, Streams())
    work = DeviceWork(
        layout=layout,
        dtypes=[handle.dtype for handle in handles],
        tensors=[tensor_over(storage, h, offset_bytes=0, device=device) for h in handles],
        stream=stream,
        stopping=threading.Event(),
    )
    work.warm_up()
    assert wait_until(work.is_idle, stopping=threading.Event(), within_ns=DONE_WITHIN_NS)
    return Rig(work, layout, stream, handles, flat, arena)


@pytest.fixture
def open_rig() -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def open_it(shape: tuple[int, ...], layers: int, l1_bytes: int) -> Rig:
        arena = open_private(l1_bytes)
        assert visible_devices()
        assert pin(arena.view(0, l1_bytes)) == ""
        rigs.append(make_rig(shape, layers, arena))
        return rigs[-1]

    yield open_it
    for rig in rigs:
        assert wait_until(rig.work.is_idle, stopping=threading.Event(), within_ns=DONE_WITHIN_NS)
        rig.work.drop()
        unpin(rig.arena.view(0, rig.arena.nbytes))
        rig.arena.close()


SOURCE = [list(range(1 + 16 * c, 17 + 16 * c))[::-1] for c in range(2)]
TARGET = [list(range(33 + 15 * c, 49 + 15 * c)) for c in range(1)]


def test_bytes_go_to_the_pinned_arena_and_back(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SHAPE, LAYERS, 64 << 20)
    before = rig.flat.clone()
    copies = rig.copies(SOURCE)
    landed(rig.work.submit_store(EVENT, copies))
    layout, arrays = rig.layout, rig.arrays()
    wanted = [replace(copy, data=np.zeros_like(copy.data)) for copy in copies]
    views = [paged_view(array, layout.groups[0].geometry) for array in arrays]
    store_objects(layout, views, wanted)
    assert [c.data.tobytes() for c in copies] == [c.data.tobytes() for c in wanted]
    assert bool((rig.flat == before).all())

    back = rig.copies(TARGET)
    landed(rig.work.submit_retrieve(EVENT, back))
    restored = rig.arrays()
    for layer in range(LAYERS):
        arrays[layer][:, TARGET[0]] = arrays[layer][:, SOURCE[0]]
        assert np.array_equal(restored[layer], arrays[layer])


def test_digests_and_single_blocks_are_those_of_the_same_bytes_on_the_host(
    open_rig: Callable[..., Rig],
) -> None:
    rig = open_rig(SHAPE, LAYERS, 1 << 20)
    columns = zip(rig.arrays(), rig.layout.formats, strict=True)
    layers = [HashedLayer(tensor=t, form=f, dtype="float16") for t, f in columns]
    ids = [5, 9, 1, 1, 60]
    wanted = aggregate_digests(layers, ids, 2)
    assert rig.work.hashed(aggregate_digests, ids, 2) == wanted
    block = rig.work.read(1, [7])
    assert np.array_equal(block, rig.arrays()[1][:, [7]])
    rig.work.write(1, [7], block ^ np.uint16(1))
    assert np.array_equal(rig.arrays()[1][:, [7]], block ^ 1)
    landed(rig.work.submit_nothing())


def test_memory_that_is_pinned_twice_is_no_harm(open_rig: Callable[..., Rig]) -> None:
    import torch

    rig = open_rig(SHAPE, LAYERS, 1 << 20)
    assert pin(rig.arena.view(0, 1 << 20)).startswith("cudaHostRegister: error")
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_useless_descriptors_are_refused_and_the_device_is_as_before() -> None:
    import torch

    uuid, device = next(iter(visible_devices().items()))
    good = replace(cuda_handle(SHAPE), device_uuid=uuid)
    raw = CudaRawHandle(
        ipc_handle=b"\x07" * 64,
        alloc_offset=0,
        nbytes=good.nbytes,
        dtype=good.dtype,
        shape=good.shape,
        stride=good.stride,
        device_uuid=uuid,
    )
    for handle in (good, raw):
        check_descriptor(handle, device)
        memory = ClientMemory(device, OpenHandles())
        with pytest.raises(RefusalError):
            memory.map([handle])
        memory.close()
    stream = CudaStream(0, Streams())
    with pytest.raises(RefusalError, match="the event that the request carries cannot be opened"):
        stream.wait_for(b"\x07" * 64)
    assert torch.ones(3, device="cuda").sum().item() == 3


def seconds(work: Callable[[], None]) -> float:
    """Return the best time of some rounds: what the machine can do."""
    times = []
    for _ in range(WARM_UPS + ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[WARM_UPS:])


def test_transfers_reach_their_share_of_the_pinned_bandwidth(
    open_rig: Callable[..., Rig], record_property: Callable[[str, object], None]
) -> None:
    import torch

    chunk_bytes = 2 * PACE_LAYERS * CHUNK * 8 * 128 * 2
    nbytes = PACE_CHUNKS * chunk_bytes
    rig = open_rig(PACE_SHAPE, PACE_LAYERS, nbytes)
    ids = [list(range(1 + 16 * c, 17 + 16 * c)) for c in range(PACE_CHUNKS)]
    copies = rig.copies(ids)
    host = torch.from_numpy(rig.arena.view(0, nbytes))
    device = torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def copy_out() -> None:
        host.copy_(device, non_blocking=True)
        torch.cuda.synchronize()

    def copy_in() -> None:
        device.copy_(host, non_blocking=True)
        torch.cuda.synchronize()

    found = {
        "pinned out": nbytes / seconds(copy_out) / 1e9,
        "pinned in": nbytes / seconds(copy_in) / 1e9,
        "store": nbytes / seconds(lambda: landed(rig.work.submit_store(EVENT, copies))) / 1e9,
        "retrieve": nbytes / seconds(lambda: landed(rig.work.submit_retrieve(EVENT, copies))) / 1e9,
    }
    for name, gb_per_s in found.items():
        record_property(f"{name} GB/s", round(gb_per_s, 1))
    shown = ", ".join(f"{name} {gb_per_s:.1f} GB/s" for name, gb_per_s in found.items())
    assert found["store"] >= FLOOR * found["pinned out"], shown
    assert found["retrieve"] >= FLOOR * found["pinned in"], shown


def test_a_stuck_stream_holds_up_no_other_client_and_no_digest(
    open_rig: Callable[..., Rig],
) -> None:
    """The streams that torch gives out come round again after 32."""
    import torch

    from benchserver.refserver.gpu.stream import TORCH_STREAMS

    stuck = open_rig(SHAPE, LAYERS, 64 << 20)
    with stuck.stream.running():
        torch.cuda._sleep(4_000_000_000)  # some 2 s
    free = Streams()
    streams = [free.take(torch.device("cuda", 0)) for _ in range(TORCH_STREAMS - 1)]
    assert all(stream.query() for stream in streams)
    assert not stuck.work.is_idle()
    for _ in range(2 * TORCH_STREAMS):
        assert wait_until(
            stuck.work.submit_nothing().is_done, stopping=threading.Event(), within_ns=10**9
        )
    # A STORE behind it is submitted without waiting.
    ids = [list(range(1, 17))] * 2
    started_s = time.monotonic()
    submitted = stuck.work.submit_store(EVENT, stuck.copies(ids))
    assert time.monotonic() - started_s < 1
    assert not submitted.is_done()
    landed(submitted)


def test_an_allocation_knows_its_size_from_any_of_its_addresses() -> None:
    import torch

    from benchserver.refserver.gpu.driver import bytes_behind

    assert visible_devices()
    flat = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    begin = flat.data_ptr()
    assert bytes_behind(0, begin) >= 64 << 20
    assert bytes_behind(0, begin) - bytes_behind(0, begin + 4096) == 4096
