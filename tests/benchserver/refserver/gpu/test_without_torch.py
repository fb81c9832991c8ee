"""GPU clients of a server that cannot serve them, and a server that must."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from benchserver.embedded import embedded_server
from benchserver.errors import FatalError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.ops.registration import on_gpu
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.server import serve
from protocol.handles import CpuShmHandle, KvHandle
from protocol.messages import VOID
from protocol.ops import Op
from shapespec import parse_shape_spec
from tests.benchserver.refserver.gpu.described import CUDA, RAW
from tests.cudastage import cuda_handle
from tests.faultstage import FROM, client_memory, empty_stage, key

ON_HOST = CpuShmHandle(
    shm_name="none", nbytes=CUDA.nbytes, dtype="float16", shape=CUDA.shape, stride=CUDA.stride
)

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
