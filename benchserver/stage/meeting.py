"""First contact: from an address to a server whose release, chunk size and state are known.

Nothing is registered here, and nothing is sent that could harm a server of any release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchserver.check.verdict import Ledger
from benchserver.client import discovery
from benchserver.client.connection import CallFailedError, Connection
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.clock import Clock
from benchserver.config.engine import Engine, with_whole_chunk
from benchserver.config.fits import check_geometry
from benchserver.config.target import Target
from benchserver.errors import FatalError, one_line
from benchserver.geometry import Geometry
from benchserver.result import ServerFacts
from benchserver.stage.alive import AliveCheck
from benchserver.stage.condition import Condition
from benchserver.stage.connections import Reach
from benchserver.stage.opened import Opened
from benchserver.stage.outside import Outside
from protocol.dialect import Dialect
from protocol.ops import Op

_MAX_CHUNK_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A server that was met."""

    dialect: Dialect
    connection: Connection
    http: HttpApi
    condition: Condition
    alive: AliveCheck


class Meeting:
    """Meets the server of one run; call `meet` once, and `fit` if requests are to be made."""

    def __init__(
        self,
        target: Target,
        engine: Engine | None,
        opened: Opened,
        *,
        server: ServerFacts,
        ledger: Ledger,
        clock: Clock,
        note: Callable[[str], None],
    ) -> None:
        """What becomes known is written into `server`, what is opened into `opened`."""
        self._target = target
        self._engine = engine
        self._opened = opened
        self._server = server
        self._ledger = ledger
        self._clock = clock
        self._note = note

    async def meet(self, outside: Outside) -> Met:
        """Reach the server, learn its release and its chunk size.

        Raises FatalError or UsageError.
        """
        await self._reach(outside.reach)
        http = self._opened.http = outside.http(self._target)
        dialect = await self._release(http)
        connection = self._opened.connections.open(dialect)
        alive = self._opened.connections.alive = AliveCheck(connection, http, self._clock)
        await self._first_call(connection)
        condition = Condition(self._target, http, clock=self._clock, ledger=self._ledger)
        self._opened.condition = condition
        return Met(
            dialect=dialect, connection=connection, http=http, condition=condition, alive=alive
        )

    def fit(self, engine: Engine, in_flight: int) -> tuple[Engine, Geometry]:
        """Return the engine as this server's chunks allow it, and how requests divide.

        Raises UsageError if a client cannot have `in_flight` of them under way.
        """
        chunk_tokens, asked = self._server.chunk_tokens, engine.num_tokens
        self._note(f"Resolved KV shape spec: {engine.spec.text}")
        engine = with_whole_chunk(engine, chunk_tokens)
        if engine.num_tokens != asked:
            self._note(
                f"--num-tokens = {chunk_tokens}, one chunk: the default of {asked} holds none"
            )
        geometry = engine.geometry(chunk_tokens)
        check_geometry(geometry, in_flight=in_flight)
        return engine, geometry

    async def _reach(self, reach: Reach) -> None:
        target, engine = self._target, self._engine
        mode = "" if engine is None else f" (mode={engine.mode})"
        self._note(f"Connecting to LMCache MP Server at {target.rpc_url}{mode} ...")
        self._opened.connections.reached(await reach(target, self._clock))

    async def _release(self, http: HttpApi) -> Dialect:
        """Learn the release, as said, as the server's version says, or by harmless questions."""
        target, server = self._target, self._server
        try:
            wait_s = target.wait_ready_s if target.needs_http else 0.0
            server.version = await discovery.read_version(http, clock=self._clock, wait_s=wait_s)
        except API_ERRORS as error:
            self._note(f"Server version unknown: {one_line(error)}")
        dialect = await discovery.choose_dialect(
            target, server.version, self._opened.connections.ask, self._note
        )
        http.routes = dialect.http
        server.release = target.server_release or dialect.name
        seed = "" if self._engine is None else f", seed = {self._engine.seed}"
        version = server.version or "unknown"
        self._note(f"Server version = {version}, spoken to as {server.release}{seed}")
        return dialect

    async def _first_call(self, rpc: Connection) -> None:
        """GET_CHUNK_SIZE.

        Of a wrong release it could be CLEAR: first the release is confirmed, unless it was found
        out by questions anyway.
        """
        target, server = self._target, self._server
        if target.server_release or discovery.dialect_of_version(server.version):
            await discovery.confirm_release(
                rpc, target, server.version, self._opened.connections.ask, self._note
            )
        try:
            reply = await rpc.call(Op.GET_CHUNK_SIZE)
        except CallFailedError as error:
            raise FatalError(
                f"{target.rpc_url} is reachable, but {error}; it is not an LMCache MP server "
                f"of release {server.release}, or its RPC thread is dead"
            ) from error
        chunk_tokens = int(reply.result)
        if not 0 < chunk_tokens <= _MAX_CHUNK_TOKENS:
            raise FatalError(f"GET_CHUNK_SIZE answered {chunk_tokens}, expected a positive size")
        server.chunk_tokens = chunk_tokens
        self._note(f"Server chunk_size = {chunk_tokens}")
