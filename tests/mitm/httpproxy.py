"""A transparent proxy for the server's HTTP API; only digests can be tampered with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from protocol.httpapi import CHECKSUMS_PATH

_ANSWER_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes


Ask = Callable[[], Awaitable[Answer]]
DigestHandler = Callable[[web.Request, Ask], Awaitable[web.StreamResponse]]


class HttpProxy:
    """One HTTP front; create it inside a running event loop and close it."""

    def __init__(self, base_url: str, digests: DigestHandler | None) -> None:
        self._base = base_url.rstrip("/")
        self._digests = digests
        timeout = aiohttp.ClientTimeout(total=_ANSWER_WITHIN_S)
        self._session = aiohttp.ClientSession(timeout=timeout)
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, handler_cancellation=True,
            shutdown_timeout=0.2,
        )  # fmt: skip

    async def start(self) -> int:
        """Begin to serve; returns the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """End every connection."""
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()

        async def ask() -> Answer:
            url = self._base + request.path_qs
            headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
            async with self._session.request(
                request.method, url, data=body or None, headers=headers
            ) as response:
                return Answer(status=response.status, body=await response.read())

        try:
            if self._digests is not None and request.path == CHECKSUMS_PATH:
                return await self._digests(request, ask)
            return as_response(await ask())
        except aiohttp.ClientError:
            # As without us: the connection ends without an answer.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)


def as_response(answer: Answer) -> web.Response:
    """Pass an answer on."""
    return web.Response(status=answer.status, body=answer.body, content_type="application/json")


async def hang(_request: web.Request, _ask: Ask) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def lie(_request: web.Request, ask: Ask) -> web.StreamResponse:
    """Change the last digit of the first digest."""
    answer = await ask()
    head, mark, rest = answer.body.partition(b'"chunk_checksums"')
    at = rest.index(b'"') + 32
    digit = b"1" if rest[at : at + 1] == b"0" else b"0"
    body = head + mark + rest[:at] + digit + rest[at + 1 :]
    return as_response(Answer(status=answer.status, body=body))


async def error_500(_request: web.Request, _ask: Ask) -> web.StreamResponse:
    """Fail."""
    return web.json_response({"detail": "disk on fire"}, status=500)


async def half_json(_request: web.Request, ask: Ask) -> web.StreamResponse:
    """Send the first half of the document, as if it were all."""
    answer = await ask()
    half = answer.body[: len(answer.body) // 2]
    return as_response(Answer(status=answer.status, body=half))


async def cut(request: web.Request, ask: Ask) -> web.StreamResponse:
    """Announce the whole document, send half of it and end the connection."""
    answer = await ask()
    response = web.StreamResponse(headers={"Content-Length": str(len(answer.body))})
    await response.prepare(request)
    await response.write(answer.body[: len(answer.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
