"""Servers that the sweep starts: ready, too late, dead at once; and nothing of them left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchserver.errors import FatalError
from benchserver.sweep.server import Ports, Serving, command_of, ports_for, serving
from benchserver.sweep.template import words_of
from tests.benchserver.sweep.processes import PYTHON, WITHIN_S, all_gone, sleeper, written_pids

HOW = Serving(environment=dict(os.environ), ready_s=WITHIN_S, stop_s=lambda: WITHIN_S)

_ACCEPTS = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        listener.accept()[0].close()
"""


def test_ports() -> None:
    both = ports_for(("x", "{rpc_port}", "{http_port}"))
    assert both.http is not None
    assert both.rpc != both.http
    assert ports_for(("x", "{rpc_port}")).http is None
    words = ("x", "--port={rpc_port}", "{http_port}")
    assert command_of(words, Ports(rpc=5, http=6)) == ("x", "--port=5", "6")


@pytest.mark.asyncio
async def test_our_own_server(tmp_path: Path) -> None:
    words = words_of("serve --l1-size-gb 0.1")
    ports = ports_for(words)
    async with serving(command_of(words, ports), ports, tmp_path / "log", HOW) as server:
        assert server.exit_code is None
    assert server.exit_code == 0
    assert str(ports.rpc) in (tmp_path / "log").read_text()


@pytest.mark.asyncio
async def test_a_server_without_http_is_ready_when_it_listens(tmp_path: Path) -> None:
    words = (*PYTHON, _ACCEPTS, "{rpc_port}")
    ports = ports_for(words)
    async with serving(command_of(words, ports), ports, tmp_path / "log", HOW) as server:
        assert server.exit_code is None
    assert server.exit_code is not None


@pytest.mark.asyncio
async def test_a_server_that_dies_says_why(tmp_path: Path) -> None:
    words = (*PYTHON, "import sys; print('no L1 of that size'); sys.exit(4)")
    with pytest.raises(FatalError) as caught:
        async with serving(words, Ports(rpc=1, http=None), tmp_path / "log", HOW):
            raise AssertionError
    assert str(caught.value) == (
        "the server ended before it was ready, exit code 4; it said: no L1 of that size "
        f"(all of it: {tmp_path / 'log'})"
    )


@pytest.mark.asyncio
async def test_a_server_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    words = sleeper(tmp_path / "pids")
    how = Serving(environment=dict(os.environ), ready_s=1.0, stop_s=lambda: WITHIN_S)
    ports = ports_for(("{rpc_port}",))
    with pytest.raises(FatalError, match=r"the server was not ready within 1 s \(--ready-within\)"):
        async with serving(words, ports, tmp_path / "log", how):
            raise AssertionError
    if (tmp_path / "pids").exists():
        assert all_gone(written_pids(tmp_path / "pids"))
