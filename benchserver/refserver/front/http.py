"""The HTTP side: liveness, version, status, configuration, metrics, objects, digests, faults.

aiohttp carries it.  With a token in the configuration every path but /healthcheck asks for it.
Whatever a client sends is answered with a status below 500, as far as it is HTTP at all; 500 and
above say what the real server says with them (a block id out of range, an L2 tier that is missing).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import fields
from http import HTTPStatus
from typing import Any

from aiohttp import web

from benchserver.errors import FatalError, UsageError
from benchserver.refserver.core import Core
from benchserver.refserver.faults.board import Switchboard
from benchserver.refserver.faults.call import HttpAnswer
from benchserver.refserver.front import objects
from benchserver.refserver.front.authorization import CHALLENGE, is_authorized
from benchserver.refserver.front.bodies import Bodies, BodyError
from benchserver.refserver.front.listener import Connections, Listener, connection_limit
from benchserver.refserver.front.metrics import CONTENT_TYPE, Exposition
from benchserver.refserver.front.objects import ObjectsError
from benchserver.refserver.front.status import config_document, status_document
from benchserver.refserver.instance import Instance
from benchserver.refserver.journal import Journal
from benchserver.refserver.meter import Meter
from benchserver.refserver.pages import checksums
from benchserver.refserver.refusal import RefusalError
from protocol import httpapi
from protocol.bounds import check_json
from protocol.errors import RemoteProtocolError
from protocol.values import clip, is_int, is_int_list

LATEST = httpapi.HTTP_051
_MAX_QUERY_IDS = 1 << 20

MAX_LINE_BYTES = 64 << 10
"""The first line of a request, which holds all block ids in /kvcache/check (0.5.0 and before);
about as much as the real server takes."""

FAULTS_PATH = "/faults"
"""Ours alone: GET lists the faults that are on, POST replaces them."""

_BODY: ContextVar[bytes] = ContextVar("body")
"""The body of the request that is being answered."""

HEADERS_WITHIN_S = 15.0
"""How long a client may take to send the head of its first or next request."""

LINGER_S = 2.0
"""How long the rest of a body that nobody wants is read, so that its client sees the answer."""

STOP_TIMEOUT_S = 1.0
"""How long answers that are under way may take when the server stops."""


class _BadRequestError(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


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
        guards = [_authorizing(token)] if token else []
        app = web.Application(
            middlewares=[
                *guards,
                _tampering(board, named_now),
                _answer_errors,
                _reading_bodies(self._connections),
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
            logger=_journaling(core.journal),
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
            self._board.replace(_fault_texts(_json_map()))
        except (UsageError, _BadRequestError) as error:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        return web.json_response(self._board.document())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _list_objects(self, request: web.Request) -> web.Response:
        objects.refuse_listing(self._tier_names(), request.query)

    async def _delete_objects(self, _request: web.Request) -> web.Response:
        wanted = objects.parse_deletion(_json())
        now_ns = self._core.clock.now_ns()
        answer = objects.delete(self._core.cache, self._tier_names(), wanted, now_ns)
        return web.json_response(answer)

    def _tier_names(self) -> list[str]:
        tiers = () if self._core.backing is None else self._core.backing.tiers
        return [tier.name for tier in tiers]

    async def _clear(self, _request: web.Request) -> web.Response:
        body = _json() if _BODY.get() else None
        if body is not None and not isinstance(body, dict):
            raise _unprocessable("the body is no JSON object")
        tier, force = (body or {}).get("tier", "l1"), (body or {}).get("force", False)
        objects.check_tier(tier)
        if not isinstance(force, bool):
            raise _unprocessable(f"force is {clip(force)}, expected a bool")
        if tier != "l1":
            raise _BadRequestError(
                HTTPStatus.BAD_REQUEST, f"tier {tier} cannot be cleared, only l1"
            )
        self._core.cache.clear(force=force, now_ns=self._core.clock.now_ns())
        return web.json_response({"status": "ok", "cleared": {"tier": "l1"}})

    async def _clear_all(self, _request: web.Request) -> web.Response:
        """POST /clear-cache, which asks no question (0.5.0 and before)."""
        self._core.cache.clear(force=True, now_ns=self._core.clock.now_ns())
        return web.json_response({"status": "ok"})

    async def _checksums(self, _request: web.Request) -> web.Response:
        return await self._digests(*_checksum_fields(_json_map()))

    async def _checksums_by_query(self, request: web.Request) -> web.Response:
        """GET /kvcache/check (0.5.0 and before)."""
        return await self._digests(*_checksum_query(request.query))

    async def _digests(
        self, block_ids: list[int], size: int, instance_id: int, layerwise: bool
    ) -> web.Response:
        instance = self._hashable_instance(instance_id)
        if not block_ids:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "block_ids is required")
        if size <= 0:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "chunk_size must be positive")
        if not checksums.blocks_in_range(instance.num_blocks, block_ids):
            raise _BadRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "a block id is out of range")
        digest = checksums.layerwise_digests if layerwise else checksums.aggregate_digests
        try:
            digests = await instance.digests(digest, block_ids, size)
        except RefusalError as error:
            self._core.journal.line(f"digests of instance {instance_id}: {error}")
            raise _BadRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error
        answer = {
            "status": "success",
            "chunk_size": size,
            "num_chunks": -(-len(block_ids) // size),
            "chunk_checksums": digests,
            "layerwise": layerwise,
            "block_id_ranges": checksums.id_ranges(block_ids),
        }
        return web.json_response(answer)

    def _hashable_instance(self, instance_id: int) -> Instance:
        if not self._core.config.serves_mapped:
            raise _BadRequestError(
                HTTPStatus.NOT_IMPLEMENTED, "checksums need a mode that maps client tensors"
            )
        instance = self._core.registry.mapped.get(instance_id)
        if instance is None:
            raise _BadRequestError(
                HTTPStatus.NOT_FOUND, f"instance_id {clip(instance_id)} is not registered"
            )
        return instance


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


def _journaling(journal: Journal) -> logging.Logger:
    """Return a logger of this server alone, outside the process's tree of loggers."""
    logger = logging.Logger("refserver.http")
    logger.addHandler(_JournalHandler(journal))
    return logger


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (_BadRequestError, BodyError, ObjectsError) as error:
        return web.json_response({"detail": error.detail}, status=error.status)
    except web.HTTPClientError as error:
        return web.json_response({"detail": error.reason}, status=error.status)


def _reading_bodies(connections: Connections) -> Any:
    """Return what reads a request's body before anything is done for it.

    So a client that is slow, or stops, keeps nothing busy.
    """
    bodies = Bodies()

    @web.middleware
    async def read(request: web.Request, handler: _Handler) -> web.StreamResponse:
        async with bodies.of(request) as body:
            _BODY.set(body)  # of this request alone: each is handled in a task of its own
            with connections.busy(request.transport):
                # A client that sends many requests at once lets others have their turn.
                await asyncio.sleep(0)
                return await handler(request)

    return read


def _authorizing(token: str) -> Any:
    """Return what answers 401 to a request without the token."""

    @web.middleware
    async def authorize(request: web.Request, handler: _Handler) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        if request.path == LATEST.health or is_authorized(header, token):
            return await handler(request)
        return web.json_response(
            {"detail": "this server asks for a token: Authorization: Bearer TOKEN"},
            status=HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": CHALLENGE},
        )

    return authorize


def _tampering(board: Switchboard, named_now: Mapping[str, str]) -> Any:
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


async def _root(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok", "service": "bench-server embedded server"})


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


def _json() -> Any:
    """Return the decoded body, whatever it is."""
    body = _BODY.get()
    try:
        check_json(body, "the body")
        return json.loads(body)
    except RemoteProtocolError as error:
        raise _unprocessable(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _unprocessable("the body is not JSON") from error


def _json_map() -> Mapping[str, Any]:
    body = _json()
    if not isinstance(body, dict):
        raise _unprocessable("the body is no JSON object")
    return body


def _checksum_fields(body: Mapping[str, Any]) -> tuple[list[int], int, int, bool]:
    block_ids, size = body.get("block_ids", []), body.get("chunk_size", 0)
    instance_id, layerwise = body.get("instance_id", 0), body.get("layerwise", False)
    if not is_int_list(block_ids) or not is_int(size) or not is_int(instance_id):
        raise _unprocessable("block_ids must be integers, chunk_size and instance_id an integer")
    if not isinstance(layerwise, bool):
        raise _unprocessable("layerwise must be a bool")
    return block_ids, size, instance_id, layerwise


_RANGE = re.compile(r"\[([0-9]{1,9}),([0-9]{1,9})\]|([0-9]{1,9})")
_QUERY_IDS = re.compile(rf"(?:{_RANGE.pattern})(?:,(?:{_RANGE.pattern}))*")


def _checksum_query(query: Mapping[str, str]) -> tuple[list[int], int, int, bool]:
    """Read `block_ids=0,[2,5],8&chunk_size=N&instance_id=N&layerwise=BOOL`; ranges are closed."""
    text = query.get("block_ids", "").replace(" ", "")
    if text and not _QUERY_IDS.fullmatch(text):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "Invalid block_ids format")
    block_ids: list[int] = []
    for first, last, single in _RANGE.findall(text):
        ids = range(int(first), int(last) + 1) if not single else (int(single),)
        if len(block_ids) + len(ids) > _MAX_QUERY_IDS:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, f"more than {_MAX_QUERY_IDS} block_ids")
        block_ids += ids
    numbers = [query.get(name, "0") for name in ("chunk_size", "instance_id")]
    if not all(re.fullmatch(r"-?[0-9]{1,19}", number) for number in numbers):
        raise _unprocessable("chunk_size and instance_id must be integers")
    layerwise = query.get("layerwise", "false").lower()
    if layerwise not in ("true", "false", "1", "0"):
        raise _unprocessable(f"layerwise is {clip(layerwise)}, expected true or false")
    return block_ids, int(numbers[0]), int(numbers[1]), layerwise in ("true", "1")


def _fault_texts(body: Mapping[str, Any]) -> list[str]:
    texts = body.get("faults")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f'faults is {clip(texts)}, expected {{"faults": ["name:args@when", ...]}}')
    return texts


def _unprocessable(detail: str) -> _BadRequestError:
    # By number: the constant was renamed in Python 3.13.
    return _BadRequestError(HTTPStatus(422), detail)
