"""GPU clients of a server that cannot serve them, and a server that must."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchserver.embedded import embedded_server
from benchserver.errors import FatalError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.server import serve
from shapespec import parse_shape_spec


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


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
