"""A run in which nothing happens any more: noticed, and the side named that is silent.

Every call has a deadline of its own, and what becomes of it is judged there.  This is for what no
deadline ends: a thread of ours that does not return, a deadlock, a deadline of hours.  A rest that
the scenario plans is none, nor is time in which this process itself was stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from benchserver.client.connection import CallFailedError
from benchserver.client.http import API_ERRORS
from benchserver.clock import NS_PER_S
from benchserver.errors import FatalError, ServerSilentError, one_line
from benchserver.stage.stacks import stacks_of
from benchserver.stage.stage import Stage
from benchserver.tasks import OutOfTimeError, gather_two, run_beside, within
from protocol.ops import Op

_ASK_WITHIN_S = 5.0
"""A server that is well answers either question in milliseconds."""

_LONGEST_TICK_S = 1.0
_TICKS = 10
_ANSWERS = ""


def tick_s(after_s: float) -> float:
    """Return how often to look, to notice within so many seconds that nothing happens."""
    return min(_LONGEST_TICK_S, after_s / _TICKS)


class Stall:
    """Ends a run once nothing was answered and nothing was concluded for too long."""

    def __init__(self, stage: Stage, *, after_s: float, show: Callable[[str], object]) -> None:
        """`show` is given the stacks of this process, if it comes to that."""
        self._stage = stage
        self._after_s = after_s
        self._show = show
        self._tick_ns = int(tick_s(after_s) * NS_PER_S)

    async def over(self, playing: Coroutine[Any, Any, None]) -> None:
        """Watch over a scenario as long as it plays."""
        await run_beside(playing, self._run())

    async def _run(self) -> NoReturn:
        """Look now and then; raises FatalError, ServerSilentError if RPC is silent."""
        clock, monitor = self._stage.clock, self._stage.book.monitor
        seen, quiet_ns, looked_ns = self._progress(), 0, clock.now_ns()
        while True:
            await clock.sleep_ns(self._tick_ns)
            now_ns, progress = clock.now_ns(), self._progress()
            # What is more than two ticks is time in which we stood still ourselves.
            quiet_ns += min(now_ns - looked_ns, 2 * self._tick_ns)
            looked_ns = now_ns
            if progress != seen or self._stage.book.resting:
                seen, quiet_ns = progress, 0
            monitor.stalled_s = quiet_ns / NS_PER_S
            if quiet_ns >= self._after_s * NS_PER_S:
                raise await self._find()

    def _progress(self) -> tuple[int, int, int]:
        book, opened = self._stage.book, self._stage.connections.opened
        answered = sum(connection.standing.answered for connection in opened)
        return book.concluded, book.measures.attempted, answered

    async def _find(self) -> FatalError:
        """Ask both sides, show where we stand, and return what is to be said."""
        stacks = stacks_of(asyncio.get_running_loop())
        self._show(f"bench-server: nothing happens; the stacks of this process:\n{stacks}")
        rpc, http = await gather_two(self._ask_rpc(), self._ask_http())
        said = f"stalled: no answer, and nothing concluded, for {self._after_s:g} s; "
        where = "; our own stacks are on stderr"
        if rpc and http:
            text = f"the server is silent over RPC ({rpc}) and over HTTP ({http})"
        elif rpc:
            text = (
                f"the server is silent over RPC ({rpc}), its HTTP API answers: its RPC thread is "
                "dead or stuck"
            )
        elif http:
            text = f"the server answers over RPC; its HTTP API is silent ({http}); {self._ours()}"
        else:
            text = f"the server answers others over RPC and HTTP; {self._ours()}"
        return (ServerSilentError if rpc else FatalError)(said + text + where)

    def _ours(self) -> str:
        """Say who owes what, of a server that answers others and this process."""
        opened = self._stage.connections.opened
        owed = Counter(op for connection in opened for op in connection.standing.owed)
        del owed[Op.PING]
        if owed:
            names = ", ".join(f"{count} {op.name}" for op, count in sorted(owed.items(), key=str))
            return f"it owes us answers: {names}"
        stuck = len(self._stage.threads.under_way)
        at_work = (
            f"its threads do not end what they are at ({stuck} under way)"
            if stuck
            else "no thread of it is at work"
        )
        return f"our own process is stuck: it waits for no answer over RPC, and {at_work}"

    async def _ask_rpc(self) -> str:
        """Return why a harmless call on a new connection was not answered, or ""."""
        connection = self._stage.connections.ask(self._stage.met.dialect)
        try:
            await connection.call(Op.NOOP, timeout_ns=int(_ASK_WITHIN_S * NS_PER_S))
        except CallFailedError as error:
            return one_line(error)
        finally:
            await connection.close()
        return _ANSWERS

    async def _ask_http(self) -> str:
        """Return why its version could not be asked for, or ""."""
        met = self._stage.met
        if met.condition.before is None:
            return "it did not answer before the run either"
        try:
            await within(met.http.version(), _ASK_WITHIN_S)
        except (*API_ERRORS, OutOfTimeError) as error:
            return one_line(error)
        return _ANSWERS
