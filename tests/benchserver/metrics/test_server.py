"""Scrapers of a run, good and bad, over real connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from benchserver.errors import UsageError
from benchserver.metrics import server
from benchserver.metrics.door import CONNECTIONS
from benchserver.metrics.server import PATH, listening_socket, serving, url_of
from benchserver.monitor.snapshot import Snapshot
from tests.benchserver.report.snapshots import snapshot

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def served(take: Callable[[], Snapshot] = snapshot) -> AsyncIterator[int]:
    """Serve a run, and yield the port."""
    listening = listening_socket("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    async with serving(listening, take):
        yield port
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def asked(port: int, request: bytes) -> tuple[str, bytes]:
    """Send a request, and return the head and the body of what comes until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head, _, body = (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n\r\n")
        return head.decode(), body
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.asyncio
async def test_a_scrape() -> None:
    async with served() as port:
        head, body = await asked(port, GET)
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert "Connection: close" in head
        assert b'\nbench_server_units_total{result="proven"} 60.0\n' in body
        assert f"Content-Length: {len(body)}" in head
        again, nothing = await asked(port, GET.replace(b"GET", b"HEAD"))
        assert again.startswith("HTTP/1.1 200 OK\r\n")
        assert f"Content-Length: {len(body)}" in again
        assert nothing == b""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (b"GET /metrics/../x HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (b"\x00\xff nonsense\r\n\r\n", "400"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", "400"),
    ],
)
async def test_what_is_no_scrape_is_refused_and_nothing_is_said(
    request_: bytes, status: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with served() as port:
        head, _ = await asked(port, request_)
        assert head.split()[1] == status
        assert (await asked(port, GET))[0].startswith("HTTP/1.1 200")
    assert capfd.readouterr() == ("", "")


@pytest.mark.asyncio
async def test_scrapers_that_come_at_once_get_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Snapshot] = []

    def take() -> Snapshot:
        taken.append(snapshot())
        return taken[-1]

    monkeypatch.setattr(server, "_FRESH_S", 3600.0)
    async with served(take) as port:
        answers = await asyncio.gather(*(asked(port, GET) for _ in range(10)))
        assert len({body for _, body in answers}) == len(taken) == 1
        monkeypatch.setattr(server, "_FRESH_S", -1.0)
        await asked(port, GET)
        assert len(taken) == 2


@pytest.mark.asyncio
async def test_many_that_hang_keep_nobody_out_and_end_with_the_run() -> None:
    async with served() as port:
        hanging = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS + 10)
        ]
        for _, writer in hanging:
            writer.write(GET[:20])
        assert (await asked(port, GET))[0].startswith("HTTP/1.1 200")
    for reader, writer in hanging:
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 30)
        writer.close()


@pytest.mark.asyncio
async def test_a_run_that_cannot_be_read_is_an_error_of_ours(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fails() -> Snapshot:
        raise KeyError("STORE")

    async with served(fails) as port:
        assert (await asked(port, GET))[0].startswith("HTTP/1.1 500")
    assert capfd.readouterr() == ("", "")


def test_a_port_in_use_is_one_line() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}{PATH}"
        with pytest.raises(UsageError) as raised:
            listening_socket("127.0.0.1", port)
    assert str(raised.value) == (
        f"--metrics-port {port}: cannot listen on 127.0.0.1: Address already in use; "
        "0 takes a free port"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 300, "\ud800", "x\0y", "", "no name"])
def test_a_host_that_is_not_ours_is_one_line(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if host == "no name":  # nobody is asked
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UsageError) as raised:
        listening_socket(host, 0)
    assert str(raised.value).startswith("--metrics-port 0: cannot listen on ")
    assert str(raised.value).isprintable()


def test_an_address_of_six() -> None:
    try:
        listening = listening_socket("::1", 0)
    except UsageError:
        pytest.skip("this machine has no IPv6")
    with listening:
        assert url_of(listening) == f"http://[::1]:{listening.getsockname()[1]}/metrics"
