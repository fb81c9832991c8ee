"""Bodies of HTTP requests: read within a deadline, and within limits of one and of all.

They are taken as they come: what Content-Encoding says is not heeded, as in the real server, so
nothing here is larger than what was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MAX_BODY_BYTES = 16 << 20
"""Room for a million block ids."""

MAX_BODIES_BYTES = 64 << 20
"""Of all requests that are being read or answered."""

BODY_WITHIN_S = 30.0
"""How long a client may take to send its body."""


class BodyError(Exception):
    """A body that is not taken, and the status that says so."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Bodies:
    """The bodies that are held just now."""

    def __init__(self) -> None:
        self.held_bytes = 0

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read a request's body, and hold it; raises BodyError before it is held."""
        body = bytearray()
        try:
            try:
                await asyncio.wait_for(self._read(request, body), BODY_WITHIN_S)
            except asyncio.TimeoutError as error:
                raise BodyError(HTTPStatus.REQUEST_TIMEOUT, "the body did not come") from error
            except (web.RequestPayloadError, HttpProcessingError) as error:
                raise BodyError(HTTPStatus.BAD_REQUEST, "the body is not framed well") from error
            yield bytes(body)
        finally:
            self.held_bytes -= len(body)

    async def _read(self, request: web.Request, body: bytearray) -> None:
        while part := await request.content.readany():
            if len(body) + len(part) > MAX_BODY_BYTES:
                raise BodyError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the body has more than {MAX_BODY_BYTES} bytes",
                )
            if self.held_bytes + len(part) > MAX_BODIES_BYTES:
                raise BodyError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"bodies of other requests hold {self.held_bytes} bytes; ask again later",
                )
            body += part
            self.held_bytes += len(part)
