"""PINGs of every registered worker, as engines send them.

A server gives up a worker that has PINGed and fell silent after two minutes, one that never did
after an hour (0.5.0 to 0.5.6): a run that pauses needs its PINGs.  Until then it keeps a killed
client's GPU memory mapped, and so taken (measured with 0.5.6): a worker that PINGs leaves it
for two minutes at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from benchserver.check.replies import REPLIES
from benchserver.check.verdict import unproven
from benchserver.client.connection import CallFailedError
from benchserver.client.worker import Worker
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import RESTARTS, one_line
from benchserver.stage.stage import Stage
from benchserver.tasks import gather_all
from protocol.ops import Op

INTERVAL_NS = 10 * NS_PER_S
"""As stock engines do."""

_BEATS = 3
"""A server that gives up sooner is sent so many in the time that it allows."""

_SHORTEST_NS = NS_PER_S // 10


def interval_ns(reap_timeout_s: float) -> int:
    """Return the time between two PINGs to a server that waits so long; 0: it does not say."""
    if not reap_timeout_s:
        return INTERVAL_NS
    return min(INTERVAL_NS, max(_SHORTEST_NS, int(reap_timeout_s * NS_PER_S) // _BEATS))


class Heartbeat:
    """Keeps the registrations of all workers alive while it runs."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        every_ns: int,
        clock: Clock,
        missed: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`missed(place, text)` hears of every PING without a good answer."""
        self._workers = workers
        self._every_ns = every_ns
        self._clock = clock
        self._missed = missed

    async def run(self) -> NoReturn:
        """PING every worker now and then, the first time after a while, until cancelled."""
        while True:
            await self._clock.sleep_ns(self._every_ns)
            await self.beat()

    async def beat(self) -> None:
        """PING every worker once."""
        await gather_all(self._ping(worker) for worker in self._workers)

    async def _ping(self, worker: Worker) -> None:
        try:
            reply = await worker.rpc.call(Op.PING, worker.instance_id)
        except CallFailedError as error:
            await self._missed(worker.place, one_line(error))
            return
        if not reply.result:
            await self._missed(
                worker.place,
                f"PING answered {one_line(ascii(reply.result), 40)}: the server does not know our "
                "registration any more",
            )


def heartbeat_on(stage: Stage) -> Heartbeat:
    """Return the heartbeat of all workers of a stage; what it misses goes to the ledger."""

    async def missed(place: str, text: str) -> None:
        stage.check_beside(place)
        if stage.survives:
            try:
                await stage.met.alive.ask(f"{place}: {text}")
            except RESTARTS:
                return  # the work meets the same, and the run waits for the server then
        stage.book.ledger.add([unproven(REPLIES, f"{place}: {text}")])

    before = stage.met.condition.before
    return Heartbeat(
        [worker for crew in stage.crews for worker in crew.workers],
        every_ns=interval_ns(0.0 if before is None else before.reap_timeout_s),
        clock=stage.clock,
        missed=missed,
    )
