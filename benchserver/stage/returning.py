"""A server that was lost and came back: left behind as far as it can be, met again, and compared.

Owns what happens between the loss and the moment at which requests can be made again.  A server
that was merely frozen is left as at the end of a run, since it still holds what is ours; one that
was restarted holds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from benchserver.check.verdict import Ledger
from benchserver.client.connection import CallFailedError
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.engine import Engine
from benchserver.config.target import Target
from benchserver.errors import FatalError, ServerGoneError, UsageError, one_line
from benchserver.result import ServerFacts
from benchserver.stage.connections import Connections
from benchserver.stage.leaving import Leaving
from benchserver.stage.meeting import Meeting, Met
from benchserver.stage.opened import Opened
from benchserver.stage.outside import Outside
from benchserver.tasks import Threads
from protocol.ops import Op

_ASK_WITHIN_NS = NS_PER_S
_ASK_AGAIN_NS = NS_PER_S // 4
_THREADS_WITHIN_S = 30.0


class Returning:
    """One loss of the server; call `leave`, then `meet`."""

    def __init__(
        self,
        target: Target,
        opened: Opened,
        *,
        server: ServerFacts,
        ledger: Ledger,
        clock: Clock,
        threads: Threads,
        note: Callable[[str], None],
        within_s: float,
    ) -> None:
        """The server may take `within_s` from now to answer again."""
        self._target = target
        self._opened = opened
        self._server = server
        self._ledger = ledger
        self._clock = clock
        self._threads = threads
        self._note = note
        self._within_s = within_s
        self._began_ns = clock.now_ns()
        self._why = ""
        """How it was lost."""
        self._last = ""
        """Why it could not be met, the last time."""

    @property
    def took_s(self) -> float:
        """Return how long the server has been away, as far as this knows."""
        return (self._clock.now_ns() - self._began_ns) / NS_PER_S

    @property
    def _left_s(self) -> float:
        return self._within_s - self.took_s

    async def leave(self, error: FatalError) -> None:
        """Wait for the server that was lost, and end what is open there if it is the same one.

        Raises ServerGoneError if it stays silent for too long.
        """
        self._note(
            f"Lost the server: {one_line(error)}. Waiting for it, {self._within_s:g} s at most"
        )
        self._why = one_line(error)
        opened = self._opened
        opened.connections.given_up = True
        while not opened.connections.lost:
            if await self._answers():
                self._note("The server answers again: it was stopped, and keeps what it had")
                await self._end_what_is_open()
                break
            if self._left_s <= 0:
                raise self._in_vain()
            await self._clock.sleep_ns(_ASK_AGAIN_NS)
        opened.desks.clear()
        if opened.workforce is not None:
            opened.workforce.forget()
        # A thread that still writes into a lease would spoil what is put there next.
        if not await asyncio.to_thread(self._threads.idle_within, _THREADS_WITHIN_S):
            raise FatalError(
                f"our own worker threads did not end within {_THREADS_WITHIN_S:g} s after the "
                "server was lost"
            )
        await opened.connections.close()
        if opened.http is not None:
            await opened.http.close()
        opened.connections = Connections(clock=self._clock, ledger=self._ledger)

    async def meet(self, engine: Engine | None, outside: Outside) -> Met:
        """Return the server that came back; it must be of the same release, with the same chunks.

        Raises ServerGoneError if it does not come back in time, FatalError if it is another one.
        """
        while True:
            found = ServerFacts(rpc_url=self._server.rpc_url, http_url=self._server.http_url)
            try:
                met = await self._try(engine, outside, found)
            except UsageError:
                raise
            except FatalError as error:
                self._last = one_line(error)
                if self._left_s <= 0:
                    raise self._in_vain() from error
                await self._forget()
                await self._clock.sleep_ns(_ASK_AGAIN_NS)
                continue
            self._compare(found)
            return met

    async def _try(self, engine: Engine | None, outside: Outside, found: ServerFacts) -> Met:
        wait_s = max(0.0, self._left_s)
        meeting = Meeting(
            replace(self._target, wait_ready_s=wait_s),
            engine,
            self._opened,
            server=found,
            ledger=self._ledger,
            clock=self._clock,
            note=lambda _: None,
        )
        return await meeting.meet(outside)

    async def _forget(self) -> None:
        """Close what a try has opened."""
        await self._opened.connections.close()
        if self._opened.http is not None:
            await self._opened.http.close()
        self._opened.connections = Connections(clock=self._clock, ledger=self._ledger)

    async def _answers(self) -> bool:
        try:
            await self._opened.connections.opened[0].call(Op.NOOP, timeout_ns=_ASK_WITHIN_NS)
        except (CallFailedError, IndexError):
            return False
        return True

    async def _end_what_is_open(self) -> None:
        leaving = Leaving(
            self._opened,
            clock=self._clock,
            ledger=self._ledger,
            silent=False,
            interrupted=False,
        )
        await leaving.leave()

    def _compare(self, found: ServerFacts) -> None:
        before = (self._server.release, self._server.chunk_tokens)
        now = (found.release, found.chunk_tokens)
        if before != now:
            raise FatalError(
                f"the server that came back is release {now[0]} with chunks of {now[1]} tokens, it "
                f"was {before[0]} with {before[1]}: what a run measures is one server"
            )
        self._server.version = found.version

    def _in_vain(self) -> ServerGoneError:
        last = f"; the last try: {self._last}" if self._last else ""
        return ServerGoneError(
            f"{self._why}; it did not come back within --reconnect-within "
            f"{self._within_s:g} s{last}"
        )
