"""`GET /metrics` of a run, on the run's own event loop.

aiohttp serves it, not the server that prometheus_client brings.  That one runs in threads of its
own, as many as there are connections, without a deadline for any; and a run's figures may be read
on its loop alone, so that each of its scrapes would wait for that loop all the same.  Here a scrape
takes its snapshot where the figures are, in a millisecond or two, and `metrics.door` bounds the
rest: how many connections there are, and how long each may take.  Scrapers that come at once get
one document.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from benchserver.errors import UsageError, one_line, os_reason
from benchserver.metrics.document import CONTENT_TYPE, RunDocument
from benchserver.metrics.door import Door
from benchserver.monitor.snapshot import Snapshot
from benchserver.tasks import cancel_and_wait

PATH = "/metrics"

_FRESH_S = 0.2
"""For so long a document is the one of now: ten scrapers cost as much as one."""

_BACKLOG = 64
_END_WITHIN_S = 0.2
_MAX_HEAD_BYTES = 8190

_UNHEARD = logging.Logger("bench-server metrics")
_UNHEARD.addHandler(logging.NullHandler())
"""What a scraper does wrong it hears itself."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; UsageError in one line if that cannot be."""
    named = f"--metrics-port {port}: cannot listen on {one_line(host, 100)}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise UsageError(f"{named}: {reason}; --metrics-host takes an address of ours") from error
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        reason = os_reason(error)
        raise UsageError(f"{named}: {reason}; 0 takes a free port") from error
    return opened


def url_of(listening: socket.socket) -> str:
    """Return what a scraper asks for."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


@asynccontextmanager
async def serving(
    listening: socket.socket, snapshot: Callable[[], Snapshot]
) -> AsyncIterator[None]:
    """Answer scrapers while this lasts; the socket is closed with it."""
    loop = asyncio.get_running_loop()
    answers = web.Server(
        _Answers(snapshot, loop.time).answer,
        access_log=None,
        logger=_UNHEARD,
        max_line_size=_MAX_HEAD_BYTES,
        max_field_size=_MAX_HEAD_BYTES,
        lingering_time=0,
    )
    door = Door(listening, answers)
    letting_in = asyncio.ensure_future(door.let_in())
    try:
        yield
    finally:
        await cancel_and_wait([letting_in])
        listening.close()
        door.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(answers.shutdown(_END_WITHIN_S), 2 * _END_WITHIN_S)


class _Answers:
    """What scrapers are answered."""

    def __init__(self, snapshot: Callable[[], Snapshot], now_s: Callable[[], float]) -> None:
        self._document = RunDocument(snapshot)
        self._now_s = now_s
        self._made: tuple[float, bytes] | None = None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, and end its connection: the next scrape is far away."""
        response = self._answer(request.method, request.path)
        response.force_close()
        return response

    def _answer(self, method: str, path: str) -> web.Response:
        if path != PATH:
            return web.Response(status=404, text=f"not here; ask for {PATH}\n")
        if method not in ("GET", "HEAD"):
            return web.Response(status=405, text="GET or HEAD\n", headers={"Allow": "GET, HEAD"})
        return web.Response(body=self._text(), headers={"Content-Type": CONTENT_TYPE})

    def _text(self) -> bytes:
        now_s = self._now_s()
        if self._made is None or now_s - self._made[0] > _FRESH_S:
            self._made = now_s, self._document.text()
        return self._made[1]
