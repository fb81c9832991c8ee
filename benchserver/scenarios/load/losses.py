"""What the server says of chunks that are missing, asked for no more often than is needed.

LOOKUP counts chunks up to the first that is missing, so one chunk is known to be: one of those that
the server has counted as dropped or evicted is used for it, once.  Servers count what happened some
moments after it did.
"""

from __future__ import annotations

import asyncio

from benchserver.check.dropped import DroppedAccount
from benchserver.check.promises import told_of
from benchserver.clock import NS_PER_S
from benchserver.scenarios.load.records import Missing
from benchserver.stage.stage import Stage
from protocol.counters import Counters

_LOOKS = 4
_LOOK_AGAIN_NS = NS_PER_S // 2

_NEVER_NS = -1


class Losses:
    """The account of one run's missing chunks."""

    def __init__(self, stage: Stage, account: DroppedAccount) -> None:
        self.account = account
        self._stage = stage
        self._model_name = stage.crews[0].engine.model_name
        self._asking = asyncio.Lock()
        self._read_ns = _NEVER_NS
        self._now: Counters | None = None
        self._unloaded = 0
        """How many chunks that L2 failed to load have explained one that is missing."""
        self.locks_known = True
        """Whether all RETRIEVEs were answered, so that none of our locks was freed twice."""

    async def explain(self, *, may_be_late: bool) -> Missing:
        """Say why a chunk is missing whose STORE was acknowledged.

        `may_be_late`: it was stored so recently that it need not be visible yet.
        """
        for look in range(_LOOKS):
            if look:
                await self._stage.clock.sleep_ns(_LOOK_AGAIN_NS)
            now = await self.counters()
            if self.account.explain(1, now):
                return Missing.DROPPED
            if self.account.explain_evicted(1, now):
                return Missing.EVICTED
            if self._explain_unloaded(now):
                return Missing.UNLOADED
            if may_be_late:
                return Missing.NOT_VISIBLE
            if now is None:
                return Missing.UNTOLD
        return Missing.UNEXPLAINED

    def _explain_unloaded(self, now: Counters | None) -> bool:
        since = self.account.since(now)
        explained = since is not None and since.unloaded_chunks > self._unloaded
        self._unloaded += explained
        return explained

    async def told(self) -> str:
        """Return what explains that a promised hit was not delivered."""
        since, condition = self.account.since(await self.counters()), self._stage.met.condition
        return told_of(since, None if condition.before is None else await condition.read())

    async def counters(self) -> Counters | None:
        """Return what the server has counted, now or later; who asks at once shares an answer."""
        asked_ns = self._stage.clock.now_ns()
        async with self._asking:
            if self._read_ns < asked_ns:
                self._read_ns = self._stage.clock.now_ns()
                self._now = await self._stage.met.condition.counters(self._model_name)
            return self._now
