"""Whether a server that owes an answer is gone, stuck, stopped, or merely late with that one."""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.client.connection import CallFailedError, Connection, ConnectionLostError
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import ServerGoneError, ServerSilentError
from benchserver.history import CallRecord, Outcome
from protocol.ops import Op

_ALIVE_WITHIN_NS = 2 * NS_PER_S
NEVER_NS = -1


class AliveCheck:
    """Asks a server for a sign of life after an answer that did not come."""

    def __init__(self, rpc: Connection, http: HttpApi | None, clock: Clock) -> None:
        self._rpc = rpc
        self._http = http
        self._clock = clock
        self.answered_ns = NEVER_NS
        """When it last gave one."""

    async def check(self, steps: Sequence[CallRecord]) -> None:
        """End the run unless all steps were answered, or the server still answers."""
        lost = [f"{s.name}: {s.reason}" for s in steps if s.outcome is Outcome.UNKNOWN]
        if lost:
            await self.ask(lost[0])

    async def ask(self, lost: str) -> None:
        """End the run unless the server, which owes us what was `lost`, still answers.

        Raises ServerGoneError, or ServerSilentError if it may only have been stopped.
        """
        if await self._answers(lost):
            return
        said = f"the server no longer answers: {lost}; then no answer to NOOP either"
        if self._http is None:
            raise ServerSilentError(f"{said}; its HTTP API was not asked")
        try:
            await self._http.version()
        except API_ERRORS:
            raise ServerSilentError(f"{said}; its HTTP API is silent too") from None
        # It may have been stopped until now.
        if not await self._answers(lost):
            raise ServerGoneError(
                f"{said}; its HTTP API still answers, so its RPC thread is dead or stuck"
            )

    async def _answers(self, lost: str) -> bool:
        try:
            await self._rpc.call(Op.NOOP, timeout_ns=_ALIVE_WITHIN_NS)
        except ConnectionLostError as error:
            raise ServerGoneError(f"the server is gone: {lost}") from error
        except CallFailedError:
            return False
        self.answered_ns = self._clock.now_ns()
        return True
