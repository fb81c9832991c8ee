"""The HTTP side: liveness, version, status, configuration, metrics, objects, digests, faults.

aiohttp carries it.  With a token in the configuration every path but /healthcheck asks for it.
Whatever a client sends is answered with a status below 500, as far as it is HTTP at all; 500 and
above say what the real server says with them (a block id out of range, an L2 tier that is missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from http import HTTPStatus
from typing import Any

from aiohttp import web

from benchserver.errors import FatalError, UsageError
from benchserver.refserver.core import Core
from benchserver.refserver.faults.board import Switchboard
from benchserver.refserver.front import objects
from benchserver.refserver.front.badrequest import BadRequestError, unprocessable
from benchserver.refserver.front.bodies import body, json_body, json_map
from benchserver.refserver.front.digests import (
    digests_document,
    question_in_query,
    question_of,
)
from benchserver.refserver.front.listener import Connections, Listener, connection_limit
from benchserver.refserver.front.metrics import CONTENT_TYPE, Exposition
from benchserver.refserver.front.middleware import (
    answer_errors,
    authorizing,
    journaling,
    reading_bodies,
    tampering,
)
from benchserver.refserver.front.status import config_document, status_document
from benchserver.refserver.meter import Meter
from protocol import httpapi
from protocol.values import clip

LATEST = httpapi.HTTP_051

MAX_LINE_BYTES = 64 << 10
"""The first line of a request, which holds all block ids in /kvcache/check (0.5.0 and before);
about as much as the real server takes."""

FAULTS_PATH = "/faults"
"""Ours alone: GET lists the faults that are on, POST replaces them."""

HEADERS_WITHIN_S = 15.0
"""How long a client may take to send the head of its first or next request."""

LINGER_S = 2.0
"""How long the rest of a body that nobody wants is read, so that its client sees the answer."""

STOP_TIMEOUT_S = 1.0
"""How long answers that are under way may take when the server stops."""


class HttpServer:
    """The HTTP API of one embedded server."""

    def __init__(self, core: Core, board: Switchboard, meter: Meter) -> None:
        self._core = core
        self._board = board
        self._exposition = Exposition(core, meter)
        self._connections = Connections(connection_limit())
        self._listener: Listener | None = None
        token, routes = core.config.http_token, core.config.dialect.http
        named_now = {getattr(routes, f.name): getattr(LATEST, f.name) for f in fields(LATEST)}
        guards = [authorizing(token)] if token else []
        app = web.Application(
            middlewares=[
                *guards,
                tampering(board, named_now),
                answer_errors,
                reading_bodies(self._connections),
            ],
        )
        app.add_routes(
            [
                web.get("/", _root),
                web.get(routes.health, _health),
                web.get(routes.version, self._version),
                web.get(routes.status, self._status),
                web.get(routes.config, self._config),
                web.get(httpapi.METRICS_PATH, self._metrics),
                web.get(httpapi.OBJECTS_PATH, self._list_objects),
                web.delete(httpapi.OBJECTS_PATH, self._delete_objects),
                web.get(routes.checksums, self._checksums_by_query)
                if routes.checksums_by_query
                else web.post(routes.checksums, self._checksums),
                web.post(
                    routes.clear, self._clear if routes.clear == LATEST.clear else self._clear_all
                ),
                web.get(FAULTS_PATH, self._faults),
                web.post(FAULTS_PATH, self._replace_faults),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=journaling(core.journal),
            handle_signals=False,
            max_line_size=MAX_LINE_BYTES,
            # It runs from the start of a connection and the end of each answer.
            keepalive_timeout=HEADERS_WITHIN_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
            shutdown_timeout=STOP_TIMEOUT_S,
        )

    async def bind(self, host: str, port: int) -> int:
        """Listen and return the port; 0 takes a free one."""
        await self._runner.setup()
        assert self._runner.server is not None, "it is made by setup"
        self._listener = Listener(self._runner.server, self._connections, self._core.journal)
        try:
            return await self._listener.bind(host, port)
        except (OSError, ValueError) as error:  # ValueError: of a name that is not a host's
            raise FatalError(f"cannot listen on http://{host}:{port}: {error}") from error

    async def run(self) -> None:
        """Serve until cancelled."""
        assert self._listener is not None, "bind comes first"
        await self._listener.run()

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response(self._core.config.version)

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(status_document(self._core))

    async def _config(self, _request: web.Request) -> web.Response:
        return web.json_response(config_document(self._core.config))

    async def _faults(self, _request: web.Request) -> web.Response:
        return web.json_response(self._board.document())

    async def _replace_faults(self, _request: web.Request) -> web.Response:
        try:
            self._board.replace(_fault_texts(json_map()))
        except (UsageError, BadRequestError) as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        return web.json_response(self._board.document())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _list_objects(self, request: web.Request) -> web.Response:
        objects.refuse_listing(self._tier_names(), request.query)

    async def _delete_objects(self, _request: web.Request) -> web.Response:
        wanted = objects.parse_deletion(json_body())
        now_ns = self._core.clock.now_ns()
        answer = objects.delete(self._core.cache, self._tier_names(), wanted, now_ns)
        return web.json_response(answer)

    def _tier_names(self) -> list[str]:
        tiers = () if self._core.backing is None else self._core.backing.tiers
        return [tier.name for tier in tiers]

    async def _clear(self, _request: web.Request) -> web.Response:
        asked = json_body() if body() else {}
        if asked is not None and not isinstance(asked, dict):
            raise unprocessable("the body is not a JSON object")
        tier, force = (asked or {}).get("tier", "l1"), (asked or {}).get("force", False)
        objects.check_tier(tier)
        if not isinstance(force, bool):
            raise unprocessable(f"force is {clip(force)}, expected a bool")
        if tier != "l1":
            raise BadRequestError(HTTPStatus.BAD_REQUEST, f"tier {tier} cannot be cleared, only l1")
        self._core.cache.clear(force=force, now_ns=self._core.clock.now_ns())
        return web.json_response({"status": "ok", "cleared": {"tier": "l1"}})

    async def _clear_all(self, _request: web.Request) -> web.Response:
        """POST /clear-cache, which asks no question (0.5.0 and before)."""
        self._core.cache.clear(force=True, now_ns=self._core.clock.now_ns())
        return web.json_response({"status": "ok"})

    async def _checksums(self, _request: web.Request) -> web.Response:
        return web.json_response(await digests_document(self._core, question_of(json_map())))

    async def _checksums_by_query(self, request: web.Request) -> web.Response:
        """GET /kvcache/check (0.5.0 and before)."""
        asked = question_in_query(request.query)
        return web.json_response(await digests_document(self._core, asked))


async def _root(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok", "service": "bench-server embedded server"})


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


def _fault_texts(body: Mapping[str, Any]) -> list[str]:
    texts = body.get("faults")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f'faults is {clip(texts)}, expected {{"faults": ["name:args@when", ...]}}')
    return texts
