"""What stands around the handlers of HTTP: the token, the faults, bodies, errors, the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from benchserver.refserver.faults.board import Switchboard
from benchserver.refserver.faults.call import HttpAnswer
from benchserver.refserver.front.authorization import CHALLENGE, is_authorized
from benchserver.refserver.front.badrequest import BadRequestError
from benchserver.refserver.front.bodies import Bodies
from benchserver.refserver.front.listener import Connections
from benchserver.refserver.journal import Journal
from protocol.httpapi import HTTP_051

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer what a handler refuses with its status, and a document that says why."""
    try:
        return await handler(request)
    except BadRequestError as error:
        return web.json_response({"detail": error.detail}, status=error.status)
    except web.HTTPClientError as error:
        return web.json_response({"detail": error.reason}, status=error.status)


def reading_bodies(connections: Connections) -> Any:
    """Return what reads a request's body before anything is done for it.

    So a client that is slow, or stops, keeps nothing busy.
    """
    bodies = Bodies()

    @web.middleware
    async def read(request: web.Request, handler: _Handler) -> web.StreamResponse:
        async with bodies.of(request):
            with connections.busy(request.transport):
                # A client that sends many requests at once lets others have their turn.
                await asyncio.sleep(0)
                return await handler(request)

    return read


def authorizing(token: str) -> Any:
    """Return what answers 401 to a request without the token."""

    @web.middleware
    async def authorize(request: web.Request, handler: _Handler) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        if request.path == HTTP_051.health or is_authorized(header, token):
            return await handler(request)
        return web.json_response(
            {"detail": "this server asks for a token: Authorization: Bearer TOKEN"},
            status=HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": CHALLENGE},
        )

    return authorize


def tampering(board: Switchboard, named_now: Mapping[str, str]) -> Any:
    """Return what lets the faults that are on answer in a handler's place.

    Faults know paths by their latest names.
    """

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        hook = board.answer_of(named_now.get(request.path, request.path))
        if hook is None:
            return await handler(request)

        async def ask() -> HttpAnswer:
            response = await handler(request)
            body = response.body if isinstance(response, web.Response) else None
            return HttpAnswer(status=response.status, body=body if isinstance(body, bytes) else b"")

        return await _send_answer(request, await hook(ask))

    return answer


async def _send_answer(request: web.Request, answer: HttpAnswer) -> web.StreamResponse:
    if not answer.cut:
        return web.Response(status=answer.status, body=answer.body, content_type="application/json")
    length = {"Content-Length": str(len(answer.body))}
    response = web.StreamResponse(status=answer.status, headers=length)
    await response.prepare(request)
    await response.write(answer.body[: len(answer.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


class _JournalHandler(logging.Handler):
    """Turns what aiohttp logs, which is whole tracebacks, into lines of the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line: what happened, and why."""
        error = record.exc_info[1] if record.exc_info else None
        cause = f": {type(error).__name__}: {error}" if error is not None else ""
        self._journal.line(f"HTTP: {record.getMessage()}{cause}")


def journaling(journal: Journal) -> logging.Logger:
    """Return a logger of this server alone, outside the process's tree of loggers."""
    logger = logging.Logger("refserver.http")
    logger.addHandler(_JournalHandler(journal))
    return logger
