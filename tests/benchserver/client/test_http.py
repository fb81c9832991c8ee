"""The HTTP client against a server of literal bytes on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchserver.client import http as http_module
from benchserver.client.http import API_ERRORS, HttpApi, HttpFailedError
from protocol.errors import RemoteProtocolError
from protocol.httpapi import ServerStatus

pytestmark = pytest.mark.usefixtures("leak_free")

STATUS = {
    "chunk_size": 256,
    "active_sessions": 1,
    "storage_manager": {"l1_manager": {"read_locked_count": 2, "write_locked_count": 3}},
    "cache_context_meta": {"17": {}},
    "registered_non_cuda_instance_ids": [18],
}


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


class Server:
    """Sends one answer to every request, then closes the connection; b"" never answers."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.requests: list[bytes] = []
        self._hanging = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.splitlines()
                if line[:15] == b"Content-Length:"
            ),
            0,
        )
        self.requests.append(head + await reader.readexactly(length))
        if not self._content:
            await self._hanging.wait()
        try:
            writer.write(self._content)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def release(self) -> None:
        self._hanging.set()


@asynccontextmanager
async def served(content: bytes, timeout_s: float = 20.0) -> AsyncIterator[tuple[HttpApi, Server]]:
    server = Server(content)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    api = HttpApi(f"http://127.0.0.1:{port}/", timeout_s=timeout_s)
    try:
        yield api, server
    finally:
        await api.close()
        server.release()
        listener.close()
        await listener.wait_closed()


def ask(content: bytes, method: Callable[[HttpApi], Awaitable[Any]], **kwargs: Any) -> Any:
    """Return what a method gives, against a server with one answer."""

    async def main() -> Any:
        async with served(content, **kwargs) as (api, _):
            return await method(api)

    return asyncio.run(main())


def refuse(content: bytes, **kwargs: Any) -> HttpFailedError:
    with pytest.raises(HttpFailedError) as caught:
        ask(content, HttpApi.version, **kwargs)
    assert str(caught.value).isprintable()
    return caught.value


def test_version() -> None:
    assert ask(answer(b'"0.5.6-g3e11e108"'), HttpApi.version) == "0.5.6-g3e11e108"


def test_a_status_of_registrations_and_locks() -> None:
    assert ask(answer(json.dumps(STATUS).encode()), HttpApi.status) == ServerStatus(
        chunk_size=256,
        active_sessions=1,
        read_locked=2,
        write_locked=3,
        handle_instances=frozenset({17}),
        engine_instances=frozenset({18}),
    )


def test_transfer_mode() -> None:
    content = answer(b'{"mp": {"supported_transfer_mode": "auto"}}')
    assert ask(content, HttpApi.transfer_mode) == "auto"


def test_requests_as_they_are_sent() -> None:
    async def main() -> list[bytes]:
        sums = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32] * 2}).encode())
        async with served(sums) as (api, server):
            digests = await api.checksums(block_ids=(4, 3, 2, 1), blocks_per_chunk=2, instance_id=9)
            assert digests == ("0" * 32, "0" * 32)
            await api.clear()
            with pytest.raises(RemoteProtocolError):
                await api.version()
        return server.requests

    checksums, clear, version = asyncio.run(main())
    assert checksums.startswith(b"POST /cache/checksums HTTP/1.1\r\n")
    assert json.loads(checksums.split(b"\r\n\r\n")[1]) == {
        "block_ids": [4, 3, 2, 1],
        "chunk_size": 2,
        "instance_id": 9,
        "layerwise": False,
    }
    assert clear.startswith(b"POST /cache/clear HTTP/1.1\r\n")
    assert clear.endswith(b"\r\n\r\n{}")
    assert version.startswith(b"GET /version HTTP/1.1\r\n")


def test_a_missing_digest_is_refused() -> None:
    content = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32]}).encode())
    with pytest.raises(RemoteProtocolError, match="2 chunk_checksums"):
        ask(content, lambda api: api.checksums(
            block_ids=(1, 2), blocks_per_chunk=1, instance_id=0
        ))  # fmt: skip


def test_another_status_than_200_is_shown_with_its_body() -> None:
    error = refuse(answer(b"Traceback:\n  \x1b[31mboom", "500 Internal Server Error"))
    assert "/version: HTTP 500, expected 200: Traceback: \\x1b[31mboom" in str(error)
    assert str(error).startswith("GET http://127.0.0.1:")
    assert not error.refused
    assert "HTTP 404, expected 200: nope" in str(refuse(answer(b"nope", "404 Not Found")))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"status": "suc', '15 bytes are not JSON: {"status": "suc'),
        (b"", "0 bytes are not JSON"),
        (b"\xff\xfe", "2 bytes are not JSON"),
        (b"[" * 100_000, "100000 bytes are not JSON"),
        (b"9" * 5000, "5000 bytes are not JSON"),
        (b"<html>\r\n" + b"x" * 500, "508 bytes are not JSON: <html> xxx"),
    ],
)
def test_an_answer_that_is_not_json(body: bytes, shown: str) -> None:
    text = str(refuse(answer(body)))
    assert shown in text
    assert len(text) < 300


def test_half_an_answer() -> None:
    assert "ClientPayloadError" in str(refuse(answer(b'"0.5', length=500)))


@pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 64, b"HTTP/1.1 200"])
def test_what_is_not_http(content: bytes) -> None:
    assert "GET http://127.0.0.1:" in str(refuse(content))


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (HttpApi.version, {"version": "0.5.6"}),
        (HttpApi.version, ""),
        (HttpApi.version, None),
        (HttpApi.status, []),
        (HttpApi.status, {**STATUS, "active_sessions": "1"}),
        (HttpApi.transfer_mode, {"mp": "auto"}),
    ],
)
def test_json_of_another_shape(method: Callable[[HttpApi], Awaitable[Any]], body: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        ask(answer(json.dumps(body).encode()), method)
    assert RemoteProtocolError in API_ERRORS


@pytest.mark.parametrize("text", ["0.5.6-\x1b[31m", "0.5.6\nfake line", "0.5.6-\ud800"])
def test_a_version_is_printable_or_refused(text: str) -> None:
    try:
        version = ask(answer(json.dumps(text).encode()), HttpApi.version)
    except RemoteProtocolError:
        return
    assert version.isprintable()


def test_no_answer_in_time() -> None:
    error = refuse(b"", timeout_s=0.05)
    assert str(error).endswith("/version: no answer within 0.05 s")
    assert not error.refused


def test_an_answer_that_never_ends_in_time() -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(b'"0', length=10))
            await done.wait()
            writer.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        api = HttpApi(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(HttpFailedError, match=r"no answer within 0\.1 s"):
            await api.version()
        await api.close()
        done.set()
        listener.close()
        await listener.wait_closed()

    asyncio.run(main())


def test_nothing_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        async def main() -> None:
            api = HttpApi(f"http://127.0.0.1:{port}", timeout_s=20)
            try:
                await api.version()
            finally:
                await api.close()

        with pytest.raises(HttpFailedError) as caught:
            asyncio.run(main())
    assert caught.value.refused
    assert f"GET http://127.0.0.1:{port}/version: cannot connect (" in str(caught.value)


@pytest.mark.parametrize("extra", [0, 1])
def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch, extra: int) -> None:
    monkeypatch.setattr(http_module, "MAX_ANSWER_BYTES", 100)
    content = answer(b'"' + b"x" * (98 + extra) + b'"')
    if extra:
        assert "the answer is longer than 100 bytes" in str(refuse(content))
    else:
        assert ask(content, HttpApi.version) == "x" * 98


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(answer(b'"0.5.6"'), HttpApi.version) == "0.5.6"
