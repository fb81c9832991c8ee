"""PINGs of every registered worker, as engines send them.

A server gives up a worker that has PINGed and fell silent after two minutes, one that never did
after an hour (0.5.0 to 0.5.6).  Until then it keeps a killed client's GPU memory mapped, and by
that taken (measured with 0.5.6): a worker that PINGs leaves it for two minutes at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from benchserver.client.rpc import CallFailedError
from benchserver.client.worker import Worker
from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import one_line
from benchserver.tasks import gather_all
from protocol.ops import Op

INTERVAL_NS = 10 * NS_PER_S
"""As stock engines do; a server must wait for three of them at least."""


class Heartbeat:
    """Keeps the registrations of all workers alive while it runs."""

    def __init__(
        self, workers: Sequence[Worker], *, clock: Clock, missed: Callable[[int, str], None]
    ) -> None:
        """`missed(rank, text)` hears of every PING without a good answer."""
        self._workers = workers
        self._clock = clock
        self._missed = missed

    async def run(self) -> NoReturn:
        """PING every worker, the first time at once, until cancelled."""
        while True:
            await gather_all(self._ping(worker) for worker in self._workers)
            await self._clock.sleep_ns(INTERVAL_NS)

    async def _ping(self, worker: Worker) -> None:
        try:
            reply = await worker.rpc.call(Op.PING, worker.instance_id)
        except CallFailedError as error:
            self._missed(worker.rank, one_line(error))
            return
        if not reply.result:
            self._missed(worker.rank, f"PING answered {one_line(ascii(reply.result), 40)}")
