"""How a run leaves its server: all that is open there is ended, in the one order that works.

Owns that order, and how long each part may take.  A server that does not answer is told all the
same: one that was merely stopped reads it once it goes on, and then keeps nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from benchserver.check.replies import REPLIES
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Ledger, unproven
from benchserver.client.connection import CallFailedError, Connection
from benchserver.client.lookups import LookupDesk, OpenRequest
from benchserver.clock import NS_PER_MS, NS_PER_S, Clock
from benchserver.errors import one_line
from benchserver.history import Outcome
from benchserver.stage.opened import Opened
from benchserver.tasks import OutOfTimeError, cancel_and_wait, gather_all, wait_first, within
from protocol.ops import Op

if TYPE_CHECKING:
    from benchserver.stage.workforce import Workforce

_FINISH_WITHIN_S = 0.8
"""How long transfers that were under way when the run was stopped may go on."""

_END_WITHIN_NS = 2 * NS_PER_S
"""A server that is well ends a session or a registration at once."""

_BACK_WITHIN_NS = 10 * NS_PER_S
"""How long a server that no longer answered may take to answer again."""

_SHORTLY_NS = 7 * NS_PER_S // 10
"""The same once the user has asked us to stop: then all must be over within 2 s."""

_SETTLE_SHORTLY_S = 0.8
"""So long all requests together may take to be ended then."""

_TOLD_WITHIN_NS = 50 * NS_PER_MS
"""How long an answer is waited for that will not come."""

_LAST_LOOK_NS = 20 * NS_PER_MS
"""What a server sends twice, it sends in one breath."""


_CLEAN_UP_S = 20.0
"""Cleaning up after a run that was not interrupted: a few calls, and the residue audit."""

_INTERRUPTED_CLEAN_UP_S = 2.0
"""After Ctrl-C everything must be over within 3 s, whatever the server does."""


async def within_budget(cleaning: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Clean up as long as there is time, which is less once the user asks us to stop.

    Tells whether all was done.
    """
    task = asyncio.ensure_future(cleaning)
    stopper = asyncio.ensure_future(stop.wait())
    try:
        await wait_first((task, stopper), _CLEAN_UP_S)
        if not task.done() and stopper.done():
            await asyncio.wait({task}, timeout=_INTERRUPTED_CLEAN_UP_S)
        if task.done():
            task.result()
        return task.done()
    finally:
        await cancel_and_wait([task, stopper])


class Leaving:
    """The end of one run towards its server; call `leave` once."""

    def __init__(
        self,
        opened: Opened,
        *,
        clock: Clock,
        ledger: Ledger,
        silent: bool,
        interrupted: bool,
    ) -> None:
        """`silent`: the server did not answer when it was last asked."""
        self._opened = opened
        self._clock = clock
        self._ledger = ledger
        self.silent = silent
        """Whether the server does not answer, as far as is known by now."""
        self._interrupted = interrupted

    async def leave(self) -> None:
        """Settle, count what is left, unregister, look once more, and count again."""
        opened = self._opened
        with contextlib.suppress(OutOfTimeError):
            await within(opened.finishing.wait(), _FINISH_WITHIN_S)
        if self.silent or self._interrupted:
            self.silent = not await self._answers()
        await self._settle(opened.desks)
        if opened.desks and not self._interrupted:
            # Unregistering may free leaked locks, so they are counted before it.
            await self._count(True)
        if opened.workforce is not None:
            await self._unregister(opened.workforce)
        await self._count(False)

    async def _answers(self) -> bool:
        within_ns = _SHORTLY_NS if self._interrupted else _BACK_WITHIN_NS
        try:
            await self._opened.connections.opened[0].call(Op.NOOP, timeout_ns=within_ns)
        except (CallFailedError, IndexError):
            return False
        return True

    @property
    def _budget_ns(self) -> int:
        return _TOLD_WITHIN_NS if self.silent else _END_WITHIN_NS

    async def _settle(self, desks: Sequence[LookupDesk]) -> None:
        """Settle all open requests together: there is no time for one after the other.

        Nor, once the user has asked us to stop, for a server that does not answer one of them: what
        is registered is then more.
        """
        pending = [(desk, r) for desk in desks for r in list(desk.open_requests.values())]
        settling = gather_all(self._settle_one(desk, request) for desk, request in pending)
        if not self._interrupted:
            await settling
            return
        with contextlib.suppress(OutOfTimeError):
            await within(settling, _SETTLE_SHORTLY_S)
        left = [r.request_id for desk, r in pending if r.request_id in desk.open_requests]
        if left:
            text = f"{len(left)} requests could not be ended in time, {left[0]} for one"
            self._ledger.add([unproven(SESSIONS, f"at the end of the run: {text}")])

    async def _settle_one(self, desk: LookupDesk, request: OpenRequest) -> None:
        ends = await desk.settle(request, timeout_ns=self._budget_ns)
        self._ledger.add(
            unproven(SESSIONS, f"at the end of the run: {end.name}: {end.reason}")
            for end in ends
            if end.outcome is not Outcome.OK
        )

    async def _unregister(self, workforce: Workforce) -> None:
        for text in await workforce.unregister(timeout_ns=self._budget_ns):
            self._fail_replies(f"{text}; whether that registration is gone is unknown")
        if not self.silent:
            await gather_all(self._look_once_more(rpc) for rpc in self._opened.connections.opened)
            await self._clock.sleep_ns(_LAST_LOOK_NS)

    async def _look_once_more(self, rpc: Connection) -> None:
        """Ask for something, so that what came before the answer has been read.

        A second answer to what was asked last would not be seen otherwise.
        """
        try:
            await rpc.call(Op.NOOP, timeout_ns=self._budget_ns)
        except CallFailedError as error:
            self._fail_replies(f"at the end of the run: {one_line(error)}")

    def _fail_replies(self, text: str) -> None:
        self._ledger.add([unproven(REPLIES, text)])

    async def _count(self, registered: bool) -> None:
        """Look what is left; `registered`: our workers still are, and may be."""
        opened = self._opened
        if opened.condition is not None and not self.silent:
            await opened.condition.audit(opened.instances, registered=registered)
