"""Bodies of HTTP requests: read within a deadline, and within limits of one and of all.

They are taken as they come: what Content-Encoding says is not heeded, as in the real server, so
nothing here is larger than what was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from benchserver.refserver.front.badrequest import BadRequestError, unprocessable
from protocol.bounds import check_json
from protocol.errors import RemoteProtocolError

MAX_BODY_BYTES = 16 << 20
"""Room for a million block ids."""

MAX_BODIES_BYTES = 64 << 20
"""Of all requests that are being read or answered."""

BODY_WITHIN_S = 30.0
"""How long a client may take to send its body."""

_BODY: ContextVar[bytes] = ContextVar("body")
"""The body of the request that is being answered; each is handled in a task of its own."""


class Bodies:
    """The bodies that are held just now."""

    def __init__(self) -> None:
        self.held_bytes = 0

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[None]:
        """Read a request's body, and hold it while the request is answered.

        Raises BadRequestError before it is held.
        """
        body = bytearray()
        try:
            try:
                await asyncio.wait_for(self._read(request, body), BODY_WITHIN_S)
            except asyncio.TimeoutError as error:
                raise BadRequestError(
                    HTTPStatus.REQUEST_TIMEOUT, "the body did not come"
                ) from error
            except (web.RequestPayloadError, HttpProcessingError) as error:
                raise BadRequestError(
                    HTTPStatus.BAD_REQUEST, "the body is not framed well"
                ) from error
            _BODY.set(bytes(body))
            yield
        finally:
            self.held_bytes -= len(body)

    async def _read(self, request: web.Request, body: bytearray) -> None:
        while part := await request.content.readany():
            if len(body) + len(part) > MAX_BODY_BYTES:
                raise BadRequestError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the body has more than {MAX_BODY_BYTES} bytes",
                )
            if self.held_bytes + len(part) > MAX_BODIES_BYTES:
                raise BadRequestError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"bodies of other requests hold {self.held_bytes} bytes; ask again later",
                )
            body += part
            self.held_bytes += len(part)


def body() -> bytes:
    """Return the body of the request that is being answered."""
    return _BODY.get()


def json_body() -> Any:
    """Return that body decoded, whatever it is; raises BadRequestError for what is not JSON."""
    text = _BODY.get()
    try:
        check_json(text, "the body")
        return json.loads(text)
    except RemoteProtocolError as error:
        raise unprocessable(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise unprocessable("the body is not JSON") from error


def json_map() -> Mapping[str, Any]:
    """Return that body as an object of JSON; raises BadRequestError for anything else."""
    document = json_body()
    if not isinstance(document, dict):
        raise unprocessable("the body is not a JSON object")
    return document
