"""What stands around the handlers of HTTP: refusals as documents, the token, one line a log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from benchserver.clock import VirtualClock
from benchserver.refserver.front.badrequest import BadRequestError
from benchserver.refserver.front.middleware import answer_errors, authorizing, journaling
from benchserver.refserver.journal import Journal

TOKEN = "secret"


async def answer(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"fine": True})


def said(response: web.StreamResponse) -> tuple[int, Any]:
    assert isinstance(response, web.Response)
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (BadRequestError(409, "not now"), 409, "not now"),
        (web.HTTPNotFound(), 404, "Not Found"),
        (web.HTTPMethodNotAllowed("GET", ["POST"]), 405, "Method Not Allowed"),
    ],
)
async def test_what_is_refused_is_a_document_that_says_why(
    error: Exception, status: int, detail: str
) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        raise error

    request = make_mocked_request("GET", "/status")
    assert said(await answer_errors(request, refuse)) == (status, {"detail": detail})
    assert said(await answer_errors(request, answer)) == (200, {"fine": True})


@pytest.mark.asyncio
async def test_a_bug_is_no_refusal() -> None:
    async def fail(_request: web.Request) -> web.StreamResponse:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await answer_errors(make_mocked_request("GET", "/status"), fail)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/status", f"Bearer {TOKEN}", 200),
        ("/status", "", 401),
        ("/status", "Bearer other", 401),
        ("/healthcheck", "", 200),
    ],
)
async def test_all_but_the_health_check_asks_for_the_token(
    path: str, header: str, status: int
) -> None:
    authorize = authorizing(TOKEN)
    request = make_mocked_request("GET", path, headers={"Authorization": header})
    response = await authorize(request, answer)
    assert response.status == status
    if status == 401:
        assert response.headers["WWW-Authenticate"].startswith("Bearer ")
        assert TOKEN not in str(said(response))


def test_what_aiohttp_logs_is_a_line_and_goes_nowhere_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines: list[str] = []
    logger = journaling(Journal(VirtualClock(), lines.append))
    try:
        raise KeyError("a\nbug")
    except KeyError:
        logger.exception("Error handling request from %s", "a client")
    logger.error("plain")
    assert lines == [
        "embedded server: HTTP: Error handling request from a client: KeyError: 'a\\nbug'",
        "embedded server: HTTP: plain",
    ]
    assert not caplog.records
