"""GPU clients of a server that cannot serve them, and all that needs neither torch nor a GPU."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.clock import NS_PER_S
from benchserver.cuda import driver as cudadriver
from benchserver.cuda import mark
from benchserver.embedded import embedded_server
from benchserver.errors import FatalError, UsageError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu import device as cudadevice
from benchserver.refserver.gpu import memory as cudamemory
from benchserver.refserver.gpu import runtime as cudaruntime
from benchserver.refserver.gpu.device import Device, refusing, visible_devices
from benchserver.refserver.gpu.driver import OpenHandles, bytes_behind
from benchserver.refserver.gpu.memory import (
    MAX_COUNTERS,
    ClientMemory,
    CudaDescriptor,
    check_counter,
    check_descriptor,
)
from benchserver.refserver.gpu.runtime import CudaRuntime, must_leave_at_once
from benchserver.refserver.gpu.stream import check_event_handle, wait_until
from benchserver.refserver.ops.registration import on_gpu
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.server import serve
from benchserver.refserver.store.arena import Arena, open_private
from protocol.handles import CpuShmHandle, CudaHandle, CudaRawHandle, KvHandle
from protocol.messages import VOID
from protocol.ops import Op
from shapespec import parse_shape_spec
from tests.cudastage import UUID, cuda_handle
from tests.faultstage import FROM, SHAPE, client_memory, empty_stage, key

CUDA = cuda_handle(SHAPE)
RAW = CudaRawHandle(
    ipc_handle=bytes(64),
    alloc_offset=0,
    nbytes=CUDA.nbytes,
    dtype=CUDA.dtype,
    shape=CUDA.shape,
    stride=CUDA.stride,
    device_uuid=UUID,
)
ON_HOST = CpuShmHandle(
    shm_name="none", nbytes=CUDA.nbytes, dtype="float16", shape=CUDA.shape, stride=CUDA.stride
)
DEVICE = Device(ordinal=0, total_bytes=1 << 30)
NO_TORCH = "import of torch halted; None in sys.modules"


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def registration(instance_id: int, handles: list[Any]) -> tuple[Any, ...]:
    return instance_id, handles, "m", 2, "vllm", {"kv_layout": "NHD"}, []


@pytest.mark.asyncio
@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("handle", [CUDA, RAW])
async def test_without_torch_a_gpu_client_is_refused_and_others_are_served(
    handle: KvHandle,
) -> None:
    with empty_stage() as stage, client_memory(1) as (handles, _):
        with pytest.raises(RefusalError) as caught:
            await stage.call(Op.REGISTER_KV_CACHE, *registration(1, [handle]))
        text = f"GPU clients need PyTorch in this server ({NO_TORCH}); "
        assert str(caught.value) == (
            f"REGISTER_KV_CACHE of instance 1: {text}pip install 'bench-server[gpu]'; "
            "no answer is sent, so the client waits until its own timeout"
        )
        assert not stage.core.registry.mapped
        assert await stage.call(Op.REGISTER_KV_CACHE, *registration(2, handles)) is VOID
        reply = await stage.call(Op.STORE, key("a", 0), 2, [FROM], b"any event")
        assert reply.ok


def test_tensors_of_one_client_lie_all_on_a_gpu_or_none() -> None:
    assert on_gpu([CUDA, RAW]) == [CUDA, RAW]
    assert on_gpu([ON_HOST, ON_HOST]) == []
    with pytest.raises(RefusalError, match=r"^1 of 2 KV tensors lie on a GPU, expected all$"):
        on_gpu([CUDA, ON_HOST])


@pytest.mark.asyncio
async def test_a_bad_layout_is_refused_before_torch_is_looked_for() -> None:
    with empty_stage() as stage:
        flat = cuda_handle((2, 3))
        with pytest.raises(RefusalError, match=r": a tensor of shape \(2, 3\)"):
            await stage.call(Op.REGISTER_KV_CACHE, *registration(1, [flat]))


async def run_to_ready(config: ServerConfig) -> None:
    stop = asyncio.Event()
    await serve(config, on_ready=lambda *_: stop.set(), stop=stop, journal=lambda _: None)


@pytest.mark.asyncio
@pytest.mark.usefixtures("without_torch")
async def test_a_server_that_must_be_ready_for_gpus_does_not_start_without_torch() -> None:
    before = threading.active_count()
    with pytest.raises(FatalError, match=r"^--gpu: GPU clients need PyTorch in this server"):
        await run_to_ready(ServerConfig(l1_bytes=1 << 16, gpu=True))
    assert threading.active_count() == before
    await run_to_ready(ServerConfig(l1_bytes=1 << 16))


@pytest.mark.parametrize(
    "changes",
    [{"transfer_mode": "engine_driven"}, {"release": "0.5.5"}, {"release": "0.4.6"}],
)
def test_gpus_are_for_modes_and_releases_that_map_them(changes: dict[str, Any]) -> None:
    ServerConfig(l1_bytes=1 << 16, **changes)
    with pytest.raises(UsageError, match=r"^--gpu with --as 0.*GPU tensors are mapped in"):
        ServerConfig(l1_bytes=1 << 16, gpu=True, **changes)
    assert ServerConfig(l1_bytes=1 << 16).serves_cuda


@pytest.fixture
def broken_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes find a torch that cannot be loaded, whatever is installed."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch\\nin this test')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.usefixtures("broken_torch")
def test_the_command_says_in_one_line_why_it_cannot_serve_gpus() -> None:
    command = [sys.executable, "-m", "benchserver", "serve", "--port", "0", "--http-port", "0"]
    done = subprocess.run(
        [*command, "--gpu", "--l1-size-gb", "0.01"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "bench-server: error: --gpu: GPU clients need PyTorch in this server (no torch); "
        "pip install 'bench-server[gpu]'\n"
    )


@pytest.mark.usefixtures("broken_torch")
def test_the_embedded_server_is_asked_to_be_ready_for_gpus() -> None:
    spec = parse_shape_spec("(2,4,4,1,8):float16:1")
    with (
        pytest.raises(FatalError, match=r"^the embedded server did not start: it said nothing"),
        embedded_server(spec, 1, 4, gpu=True),
    ):
        raise AssertionError("started without torch")
    with embedded_server(spec, 1, 4) as server:
        assert server.rpc_url.startswith("tcp://127.0.0.1:")


def fake_torch(**changes: Any) -> SimpleNamespace:
    properties = [
        SimpleNamespace(uuid=UUID.upper(), total_memory=100),
        SimpleNamespace(uuid="b", total_memory=200),
    ]
    cuda = {
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: len(properties),
        "get_device_properties": properties.__getitem__,
        **changes,
    }
    return SimpleNamespace(
        __version__="9.9", version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(**cuda)
    )


def test_devices_are_known_by_their_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    assert visible_devices() == {
        UUID: Device(ordinal=0, total_bytes=100),
        "b": Device(ordinal=1, total_bytes=200),
    }


def test_a_torch_without_cuda_and_a_machine_without_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = fake_torch(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(RefusalError, match="need a CUDA device, and none is visible"):
        visible_devices()
    torch.version.cuda = None
    with pytest.raises(RefusalError, match=r"need a PyTorch with CUDA, this one \(9.9\) has none"):
        visible_devices()

    def fail() -> None:
        raise RuntimeError("CUDA driver initialization failed\nCompile with ...")

    monkeypatch.setitem(sys.modules, "torch", fake_torch(init=fail))
    words = "^CUDA cannot be used: CUDA driver initialization failed$"
    with pytest.raises(RefusalError, match=words):
        visible_devices()


BROKEN = {
    "raise RuntimeError('compiled against another numpy\\nmore')": "RuntimeError: compiled against "
    "another numpy",
    "raise AttributeError('no x')": "AttributeError: no x",
    "raise ValueError": "ValueError",
    "raise SystemExit(7)": "SystemExit: 7",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise OSError('libtorch_cuda.so: cannot open')": "libtorch_cuda.so: cannot open",
    "__version__ = '0'": "AttributeError: module 'torch' has no attribute 'version'",
    "": "AttributeError: module 'torch' has no attribute '__version__'",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_torch_that_is_broken_is_a_refusal_of_one_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    if source:  # none: a namespace package
        (tmp_path / "torch" / "__init__.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "torch", None)
    del sys.modules["torch"]
    with pytest.raises(RefusalError) as caught:
        visible_devices()
    assert str(caught.value) == (
        f"GPU clients need PyTorch in this server ({BROKEN[source]}); "
        "pip install 'bench-server[gpu]'"
    )


@pytest.mark.parametrize("name", ["is_available", "init", "device_count"])
def test_whatever_torch_raises_about_cuda_is_a_refusal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setitem(sys.modules, "torch", fake_torch(**{name: fail}))
    words = "^CUDA cannot be used: AssertionError: Torch not compiled with CUDA enabled$"
    with pytest.raises(RefusalError, match=words):
        visible_devices()


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, ValueError, OverflowError])
def test_what_torch_raises_becomes_a_refusal_of_one_line(kind: type[Exception]) -> None:
    with (
        pytest.raises(RefusalError, match=r"^copies: CUDA error: out of memory$"),
        refusing("copies"),
    ):
        raise kind("CUDA error: out of memory\nFor debugging consider ...")
    with pytest.raises(KeyError), refusing("copies"):
        raise KeyError("a bug of ours")


def test_good_descriptors_may_be_mapped() -> None:
    for handle in (CUDA, RAW):
        check_descriptor(handle, DEVICE)
    check_descriptor(CUDA, Device(ordinal=0, total_bytes=CUDA.nbytes))
    for memory in (bytes(64), b"c" + bytes(64), b"\x02c" + bytes(64)):
        check_descriptor(shared(_1=memory), DEVICE)
    check_descriptor(shared(_6=None, _7=False), DEVICE)


def shared(**changes: Any) -> CudaHandle:
    """Return the good descriptor with other elements in its share: `_3=1` is element 3."""
    share: list[Any] = list(CUDA.share)
    for name, value in changes.items():
        share[int(name[1:])] = value
    return replace(CUDA, share=tuple(share))


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (replace(CUDA, stride=(0, 0, 0, 0, 0), shape=(2, 999, 2, 1, 4)), "overlaps itself"),
        (shared(_2=1 << 31), f"{1 << 31} bytes at 0 of an allocation, on a device of {1 << 30}"),
        (shared(_3=1 << 30), f"bytes at {1 << 30} of an allocation, on a device of"),
        (replace(RAW, alloc_offset=1 << 30), f"bytes at {1 << 30} of an allocation"),
        (shared(_3=1), "a tensor of float16 starts at byte 1 of an allocation"),
        (replace(RAW, alloc_offset=4097), "a tensor of float16 starts at byte 4097"),
        (shared(_1=None), "without memory, reference counter or event"),
        (shared(_4=None), "without memory, reference counter or event"),
        (shared(_6=None), "without memory, reference counter or event"),
        (shared(_5=MAX_COUNTERS), "reference counter 10000, torch has 10000 a file"),
        (shared(_1=b"\x02e" + bytes(64)), r"66 bytes and begins with b'\\x02e', expected one of"),
        (shared(_1=b"e" + bytes(64)), "65 bytes and begins with b'e"),
        (shared(_1=b"\x02c" + bytes(63)), "65 bytes"),
        (shared(_1=b"\x02c"), "2 bytes"),
        (shared(_1=b"\x02c" + bytes(65)), "67 bytes"),
        (shared(_6=bytes(63)), "an event of 63 bytes, expected 64"),
        (shared(_6=b"", _7=False), "an event of 0 bytes, expected 64"),
    ],
)
def test_descriptors_that_would_do_harm_are_not_mapped(handle: CudaDescriptor, words: str) -> None:
    with pytest.raises(RefusalError, match=words):
        check_descriptor(handle, DEVICE)


@contextmanager
def counter_file(nbytes: int, name: str = "") -> Iterator[str]:
    """Yield a share's name of a file as torch makes them, 64 bytes more than its counters."""
    name = name or f"torch_{os.getpid()}_{time.monotonic_ns()}_0"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(nbytes))
    try:
        yield f"/{name}"
    finally:
        path.unlink()


def test_a_reference_counter_lies_in_a_file_of_torch_that_is_large_enough() -> None:
    with counter_file(64 + 8 * 10) as name:
        check_counter(shared(_4=name.encode(), _5=9))
        with pytest.raises(RefusalError, match=rf"^reference counter {name} has 144 bytes, .* 152"):
            check_counter(shared(_4=name.encode(), _5=10))
    with pytest.raises(RefusalError, match=rf"^reference counter {name}: No such file"):
        check_counter(shared(_4=name.encode(), _5=9))
    other = f"cudatest-{os.getpid()}"
    with counter_file(1 << 17, other):
        for odd in (
            other,
            f"/{other}",
            "/torch_1_2",
            "/torch_1_2_3/",
            "/../etc/passwd",
            "\xff",
            "/",
        ):
            with pytest.raises(RefusalError, match=r"^reference counter .* expected a /torch_"):
                check_counter(shared(_4=odd.encode("latin-1")))


class Storage:
    """What a share is mapped as."""

    POINTER = 0x7000_0000

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def data_ptr(self) -> int:
        return self.POINTER + self.offset


@pytest.mark.parametrize(("behind", "fits"), [(0, True), (1, False), (511, False), (4608, True)])
def test_a_share_that_is_larger_than_its_allocation_is_not_used(
    behind: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def new_shared(ordinal: int, memory: bytes, nbytes: int, offset: int, *rest: Any) -> Storage:
        asked.append((ordinal, memory, nbytes, offset, *rest))
        return Storage(offset)

    def bytes_behind(ordinal: int, pointer: int) -> int:
        assert (ordinal, pointer) == (0, Storage.POINTER)
        return behind

    torch = fake_torch()
    torch.device = lambda *words: words
    torch.UntypedStorage = SimpleNamespace(_new_shared_cuda=new_shared)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(cudamemory, "bytes_behind", bytes_behind)
    monkeypatch.setattr(cudamemory, "tensor_over", lambda storage, *_, **__: storage)
    monkeypatch.setattr(cudamemory, "give_back_unused", lambda: None)
    memory = ClientMemory(DEVICE, OpenHandles())
    with counter_file(64 + 80_000) as name:
        handle = shared(_3=4096, _4=name.encode())
        if fits:
            memory.map([handle, handle])
            assert len(memory.tensors) == 2
        else:
            with pytest.raises(RefusalError, match=f"^an allocation has {behind} bytes, .* 4608$"):
                memory.map([handle])
            assert not memory.tensors
    assert asked == [(0, *handle.share[1:])]
    memory.close()
    assert not memory._storages


@pytest.mark.usefixtures("driver")
def test_the_driver_is_asked_how_far_an_allocation_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(name: str, *arguments: Any) -> None:
        assert name == "cuMemGetAddressRange_v2"
        arguments[0]._obj.value, arguments[1]._obj.value = 1000, 24

    monkeypatch.setattr(cudadriver, "_call", answer)
    assert [bytes_behind(0, at) for at in (1000, 1010, 1024, 2000)] == [24, 14, 0, 0]


class Driver:
    """Stands in for the calls of libcuda, and notes them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name == "cuIpcOpenMemHandle_v2":
            arguments[0]._obj.value = 0x7000 + len(self.calls)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()

    @contextmanager
    def context(_ordinal: int) -> Iterator[None]:
        yield

    monkeypatch.setattr(cudadriver, "_call", found.call)
    monkeypatch.setattr(cudadriver, "context_of", context)
    return found


def test_a_driver_handle_is_opened_once_and_closed_by_its_last_user(driver: Driver) -> None:
    handles = OpenHandles()
    first = handles.open(0, b"a" * 64)
    assert handles.open(0, b"a" * 64) == first
    assert handles.open(0, b"b" * 64) != first
    assert driver.calls == ["cuIpcOpenMemHandle_v2"] * 2
    handles.close(0, b"a" * 64)
    assert len(driver.calls) == 2
    handles.close(0, b"a" * 64)
    assert driver.calls[2:] == ["cuIpcCloseMemHandle"]
    assert handles.open(0, b"a" * 64) != first
    with pytest.raises(KeyError):
        handles.close(1, b"a" * 64)


def test_a_machine_without_the_driver_refuses_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudadriver, "LIBRARY", "libnone.so.7")
    with pytest.raises(RefusalError, match=r"^cuInit: libnone.so.7 is not usable \("):
        OpenHandles().open(0, bytes(64))
    assert bytes_behind(0, 4096) == 0


class Cuda:
    """Stands in for torch in a `CudaRuntime`."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.log: list[Any] = []

    def visible_devices(self) -> dict[str, Device]:
        self.log.append("devices")
        return {UUID: DEVICE, "other": replace(DEVICE, ordinal=1)}

    def pin(self, memory: Any) -> str:
        self.log.append(("pin", memory.ctypes.data, memory.nbytes))
        return self.problem

    def unpin(self, memory: Any) -> None:
        self.log.append(("unpin", memory.ctypes.data))


class Stream:
    """Stands in for a `CudaStream`."""

    def __init__(self, *, idle: bool) -> None:
        self.idle = idle
        self.is_closed = False

    def running(self) -> Any:
        return nullcontext()

    def is_idle(self) -> bool:
        return self.idle

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    found = Cuda()
    monkeypatch.setattr(mark, "place", lambda: None)
    monkeypatch.setattr(cudaruntime, "_given_up", [])
    for name in ("visible_devices", "pin", "unpin"):
        monkeypatch.setattr(cudaruntime, name, getattr(found, name))
    return found


@pytest.fixture
def arena() -> Iterator[Arena]:
    memory = open_private(1 << 16)
    yield memory
    memory.close()


def test_l1_is_pinned_once_and_unpinned_at_the_end(cuda: Cuda, arena: Arena) -> None:
    runtime = CudaRuntime()
    assert not cuda.log
    assert runtime.load(arena) == ""
    assert runtime.load(arena) == ""
    start = arena.view(0, 1).ctypes.data
    assert cuda.log == ["devices", ("pin", start, 1 << 16)]
    runtime.close()
    runtime.close()
    assert cuda.log[2:] == [("unpin", start)]
    assert runtime.stopping.is_set()


def test_a_server_that_cannot_pin_says_so_once_and_goes_on(cuda: Cuda, arena: Arena) -> None:
    cuda.problem = "cudaHostRegister: error 2"
    runtime = CudaRuntime()
    assert runtime.load(arena).startswith("L1 is not pinned (cudaHostRegister: error 2): ")
    assert runtime.load(arena) == ""
    runtime.close()
    assert not [entry for entry in cuda.log if entry[0] == "unpin"]


@pytest.mark.parametrize("idle", [True, False])
def test_what_is_left_at_the_end_is_unmapped_if_nothing_uses_it(
    cuda: Cuda, arena: Arena, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    closed: list[str] = []

    class Memory:
        def map(self, handles: Any) -> None:
            assert handles == [CUDA]

        def close(self) -> None:
            closed.append("memory")

    memory: Any = Memory()
    stream: Any = Stream(idle=idle)
    monkeypatch.setattr(cudaruntime, "ClientMemory", lambda *_: memory)
    monkeypatch.setattr(cudaruntime, "CudaStream", lambda *_: stream)
    runtime = CudaRuntime()
    runtime.load(arena)
    assert runtime.open([CUDA]) == (memory, stream)
    runtime.close()
    assert closed == (["memory"] if idle else [])
    assert [entry[0] for entry in cuda.log[2:]] == (["unpin"] if idle else [])
    assert stream.is_closed == idle
    # Dropped objects would be unmapped after all, by torch.
    assert must_leave_at_once() != idle
    assert cudaruntime._given_up == ([] if idle else [runtime])


@pytest.mark.usefixtures("cuda")
def test_a_client_must_be_on_one_device_that_the_server_sees(arena: Arena) -> None:
    runtime = CudaRuntime()
    runtime.load(arena)
    with pytest.raises(RefusalError) as caught:
        runtime.open([replace(CUDA, device_uuid="c")])
    assert str(caught.value) == (
        f"device 'c' is not visible to this server, which sees {UUID}, other; start it with the "
        "same CUDA_VISIBLE_DEVICES"
    )
    with pytest.raises(RefusalError, match="KV tensors on 2 devices, expected one a client"):
        runtime.open([CUDA, replace(CUDA, device_uuid="other")])
    runtime.close()


@pytest.mark.parametrize("length", [0, 15, 63, 65, 81])
def test_an_event_handle_has_64_bytes(length: int) -> None:
    check_event_handle(bytes(64))
    with pytest.raises(RefusalError, match=f"^an event handle of {length} bytes, expected 64"):
        check_event_handle(bytes(length))


class Time:
    """Passes only in sleep."""

    def __init__(self, ends_at_ns: int = -1) -> None:
        self.now = 0
        self.ends_at_ns = ends_at_ns
        self.stopping = threading.Event()
        self.stops_at_ns = -1

    def now_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += NS_PER_S // 4
        if 0 <= self.stops_at_ns <= self.now:
            self.stopping.set()

    def done(self) -> bool:
        return 0 <= self.ends_at_ns <= self.now

    def wait(self, within_ns: int) -> bool:
        return wait_until(
            self.done,
            stopping=self.stopping,
            within_ns=within_ns,
            now_ns=self.now_ns,
            sleep=self.sleep,
        )


def test_a_wait_for_the_device_has_a_deadline() -> None:
    assert Time(ends_at_ns=0).wait(0)
    time = Time(ends_at_ns=3 * NS_PER_S)
    assert time.wait(5 * NS_PER_S)
    assert time.now == 3 * NS_PER_S
    late = Time()
    assert not late.wait(5 * NS_PER_S)
    assert late.now == 5 * NS_PER_S


def test_a_server_that_stops_waits_a_second_longer_at_most() -> None:
    time = Time()
    time.stops_at_ns = 2 * NS_PER_S
    assert not time.wait(100 * NS_PER_S)
    assert time.now == 3 * NS_PER_S
    ended = Time(ends_at_ns=NS_PER_S // 2)
    ended.stopping.set()
    assert ended.wait(100 * NS_PER_S)


@pytest.mark.asyncio
async def test_a_copier_has_the_threads_that_it_was_given() -> None:
    copier = Copier(2, name="refserver-test")
    both = threading.Barrier(2, timeout=5)
    names: list[str] = []

    def meet() -> None:
        names.append(threading.current_thread().name)
        both.wait()

    await asyncio.gather(copier.run(meet), copier.run(meet))
    copier.close()
    assert sorted(names) == ["refserver-test_0", "refserver-test_1"]


def test_pinning_that_fails_leaves_no_error_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[str] = []

    @contextmanager
    def device(_ordinal: int) -> Iterator[None]:
        yield

    def zeros(*_: Any, **__: Any) -> None:
        if later:
            raise RuntimeError(later.pop())

    def register(*_: Any) -> int:
        later.append("CUDA error: part or all of the requested memory range is already mapped")
        return 712

    cudart = SimpleNamespace(cudaHostRegister=register, cudaError=SimpleNamespace(success=0))
    torch = fake_torch(device=device, cudart=lambda: cudart)
    torch.zeros = zeros
    monkeypatch.setitem(sys.modules, "torch", torch)
    memory = open_private(1 << 16)
    problem = cudadevice.pin(memory.view(0, 1 << 16))
    memory.close()
    assert problem == "cudaHostRegister: error 712"
    assert not later
