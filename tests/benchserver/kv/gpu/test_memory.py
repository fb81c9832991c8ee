"""GPU memory and its descriptors, over a torch and a driver that are not there."""

from __future__ import annotations

import os

import pytest

from benchserver.cuda.driver import DriverError
from benchserver.errors import FatalError
from benchserver.kv.gpu import memory as memory_module
from benchserver.kv.gpu.memory import CudaMemory, require_device_room
from benchserver.kv.placement import CudaIpc
from benchserver.shmnames import SHM_DIR
from protocol.handles import CudaHandle, CudaRawHandle, handle_to_wire
from tests.faketorch import GIB, UUID, FakeTensor, FakeTorch, use_fake_torch

pytestmark = pytest.mark.usefixtures("leak_free")

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 9.00 GiB.\nSee documentation"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return use_fake_torch(monkeypatch)


def memory_of(ipc: CudaIpc, nbytes: int = 1 << 20, device: int = 0) -> CudaMemory:
    return CudaMemory(nbytes, device=device, ipc=ipc)


def test_memory_is_one_flat_tensor_on_its_device(torch: FakeTorch) -> None:
    memory = memory_of("torch", 4096, device=3)
    assert memory.tensor.nbytes == 4096
    assert ("empty", 4096, "cuda:3") in torch.log
    assert memory.device == "cuda:3"
    assert memory.device_uuid == UUID.lower()
    memory.close()
    assert memory.tensor is None
    assert torch.log[-1] == "empty_cache"


def test_each_shared_descriptor_has_a_counter_of_its_own(torch: FakeTorch) -> None:
    memory = memory_of("torch")
    handles = [
        memory.handle(dtype="float16", shape=(2, 3, 4), stride=(12, 4, 1), offset=offset)
        for offset in (4096, 12288)
    ]
    memory.close()
    for number, (handle, offset) in enumerate(zip(handles, (2048, 6144), strict=True), 1):
        assert isinstance(handle, CudaHandle)
        assert handle.share[4:6] == (b"/torch_1_2_0", number)
        assert (handle.dtype, handle.storage_offset) == ("float16", offset)
        assert (handle.shape, handle.stride) == ((2, 3, 4), (12, 4, 1))
        assert handle.device_uuid == UUID.lower()
        handle_to_wire(handle)


def test_the_driver_names_the_allocation_and_the_place_in_it(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = FakeTensor.POINTER - 512
    handles = {base: b"d" * 64}

    def base_of(pointer: int) -> tuple[int, int]:
        # The driver wants the device's context in this thread.
        assert torch.log[-2:] == [("enter", "cuda:1"), ("synchronize", "cuda:1")]
        assert pointer == FakeTensor.POINTER
        return base, 1 << 20

    monkeypatch.setattr(memory_module, "address_range", base_of)
    monkeypatch.setattr(memory_module, "memory_handle", handles.__getitem__)
    memory = memory_of("driver", device=1)
    handle = memory.handle(dtype="float32", shape=(5, 6), stride=(6, 1), offset=4096)
    memory.close()
    assert handle == CudaRawHandle(
        ipc_handle=b"d" * 64,
        alloc_offset=4096 + 512,
        nbytes=120,
        dtype="float32",
        shape=(5, 6),
        stride=(6, 1),
        device_uuid=UUID.lower(),
    )
    handle_to_wire(handle)
    assert torch.shared == 0


def test_memory_that_is_not_there(torch: FakeTorch) -> None:
    torch.errors["empty"] = torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
    with pytest.raises(FatalError) as caught:
        memory_of("torch", 9 * GIB)
    assert str(caught.value) == (
        f"GPU memory: {9 * GIB} bytes asked for, {64 * GIB} bytes free on cuda:0; use a smaller "
        "--kvcache-shape-spec or --tp-size, or another device (CUDA_VISIBLE_DEVICES)"
    )


def test_a_device_that_refuses(torch: FakeTorch) -> None:
    torch.errors["empty"] = RuntimeError("CUDA error: device is lost\nCUDA kernel errors might")
    with pytest.raises(FatalError) as caught:
        memory_of("torch", 4096)
    text = "GPU memory: 4096 bytes asked for on cuda:0: CUDA error: device is lost"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("devices", "fits"),
    [([0, 0, 0], True), ([0, 0, 0, 0], False), ([0, 1, 0, 1, 0, 1], True), ([1], True)],
)
def test_room_for_all_pools_of_a_device(torch: FakeTorch, devices: list[int], fits: bool) -> None:
    if fits:
        require_device_room(21 * GIB, devices)
        return
    with pytest.raises(FatalError, match=f"{84 * GIB} bytes asked for, {64 * GIB} bytes free on"):
        require_device_room(21 * GIB, devices)


def test_room_on_a_device_that_refuses(torch: FakeTorch) -> None:
    torch.errors["mem_get_info"] = RuntimeError("CUDA error: busy")
    with pytest.raises(FatalError, match="GPU memory: cuda:2: CUDA error: busy"):
        require_device_room(1, [2])


def test_memory_that_torch_cannot_share(torch: FakeTorch) -> None:
    memory = memory_of("torch")
    torch.errors["share"] = RuntimeError("cudaMallocAsync does not yet support shareIpcHandle\nx")
    with pytest.raises(FatalError) as caught:
        memory.handle(dtype="uint8", shape=(1,), stride=(1,), offset=0)
    memory.close()
    assert str(caught.value) == (
        "--cuda-ipc torch: the KV pool on cuda:0 cannot be exported (cudaMallocAsync does not yet "
        "support shareIpcHandle); in a container start it with --ipc=host; unset "
        "PYTORCH_CUDA_ALLOC_CONF (expandable segments and cudaMallocAsync cannot be shared); or "
        "use --cuda-ipc driver"
    )


@pytest.mark.parametrize("length", [257, 441])
def test_memory_whose_share_is_too_long_to_be_sent(torch: FakeTorch, length: int) -> None:
    """As torch shares expandable segments: more bytes for each 20 MiB."""
    memory = memory_of("torch")
    torch.memory_handle = b"e" * length
    with pytest.raises(FatalError) as caught:
        memory.handle(dtype="uint8", shape=(1,), stride=(1,), offset=0)
    memory.close()
    text = str(caught.value)
    assert text.startswith(
        "--cuda-ipc torch: the KV pool on cuda:0 cannot be exported (handle: handle[1] is b'eee"
    )
    assert "unset PYTORCH_CUDA_ALLOC_CONF (expandable segments" in text
    assert "\n" not in text


def test_memory_that_the_driver_cannot_share(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> tuple[int, int]:
        raise DriverError("cuMemGetAddressRange_v2: invalid argument (1)")

    monkeypatch.setattr(memory_module, "address_range", refuse)
    memory = memory_of("driver")
    with pytest.raises(FatalError, match=r"--cuda-ipc driver: .* \(cuMemGetAddressRange_v2: inv"):
        memory.handle(dtype="uint8", shape=(1,), stride=(1,), offset=0)
    memory.close()


def test_a_mark_stands_until_the_process_ends_or_leaves_at_once(torch: FakeTorch) -> None:
    first, second = memory_of("torch"), memory_of("torch")
    (mark,) = SHM_DIR.glob(f"bench_server_{os.getpid()}_*")
    first.close()
    # Others open our events by name still.
    assert mark.exists()
    second.release()
    assert not mark.exists()
    second.close()


def test_a_device_in_an_error_state_does_not_keep_us(torch: FakeTorch) -> None:
    memory = memory_of("torch")
    torch.errors["ipc_collect"] = RuntimeError("CUDA error: an illegal memory access")
    memory.close()
    assert memory.tensor is None
