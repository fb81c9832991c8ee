"""An HTTP server of literal bytes on loopback, and the client that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchserver.client.http import HttpApi, HttpFailedError
from protocol.httpapi import HttpRoutes
from tests.tlsstage import Certificate

STATUS = {
    "chunk_size": 256,
    "active_sessions": 1,
    "storage_manager": {"l1_manager": {"read_locked_count": 2, "write_locked_count": 3}},
    "cache_context_meta": {"17": {}},
    "registered_non_cuda_instance_ids": [18],
}


TOKEN = "hunter2/hunter2=="


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


class Server:
    """Sends one answer to every request, then closes the connection; b"" never answers."""

    def __init__(self, content: bytes, until: bytes = b"\r\n\r\n") -> None:
        self._content = content
        self._until = until
        self.requests: list[bytes] = []
        self._hanging = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(self._until)
        except asyncio.IncompleteReadError:
            writer.close()
            return
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
async def served(
    content: bytes,
    timeout_s: float = 20.0,
    token: str = "",
    certificate: Certificate | None = None,
    ca: str = "",
    scheme: str = "",
    until: bytes = b"\r\n\r\n",
) -> AsyncIterator[tuple[HttpApi, Server]]:
    server = Server(content, until)
    tls = certificate.server_context() if certificate else None
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    scheme = scheme or ("https" if certificate else "http")
    api = HttpApi(f"{scheme}://127.0.0.1:{port}/", timeout_s=timeout_s, token=token, ca=ca)
    try:
        yield api, server
    finally:
        await api.close()
        server.release()
        listener.close()
        await listener.wait_closed()


async def ask(content: bytes, method: Callable[[HttpApi], Awaitable[Any]], **kwargs: Any) -> Any:
    """Return what a method gives, against a server with one answer."""
    async with served(content, **kwargs) as (api, _):
        return await method(api)


async def refuse(content: bytes, **kwargs: Any) -> HttpFailedError:
    with pytest.raises(HttpFailedError) as caught:
        await ask(content, HttpApi.version, **kwargs)
    assert str(caught.value).isprintable()
    return caught.value


async def requests_of(
    content: bytes, routes: HttpRoutes, method: Callable[[HttpApi], Awaitable[Any]], **kwargs: Any
) -> list[bytes]:
    """Return the requests that a method makes of a release with these routes."""
    async with served(content, **kwargs) as (api, server):
        api.routes = routes
        await method(api)
    return server.requests


async def clear_cache(api: HttpApi) -> None:
    """POST what empties a server's cache, as no run does."""
    await api._ask("POST", api.routes.clear, {})
