"""Looks at what a run and its server hold, now and then, while the run goes on.

A look takes some milliseconds in a thread and one GET of `/status`.  It begins a moment after the
run, which is not held up by it, and none is owed: what was not seen is said not to be measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

from benchserver.clock import NS_PER_S, Clock
from benchserver.monitor.monitor import Monitor
from benchserver.monitor.processes import Processes, Seen
from benchserver.stage.condition import Condition
from benchserver.tasks import OutOfTimeError, within
from protocol.httpapi import ServerStatus

_FIRST_NS = NS_PER_S

_STATUS_WITHIN_S = 4.0

_OURS = ("our memory", "our descriptors", "our threads")
_SERVER = ("server memory", "server descriptors", "server threads", "server processes")
_SHARED = ("shared memory names", "shared memory")
_HELD = (
    "server sessions",
    "server read locks",
    "server write locks",
    "server registrations",
    "server prefetches",
)


class Lookout:
    """Tells the monitor of one run what is held."""

    def __init__(
        self,
        monitor: Monitor,
        condition: Condition,
        rpc_url: str,
        *,
        every_s: float,
        clock: Clock,
        note: Callable[[str], object],
    ) -> None:
        """Look every so many seconds; `note` is told when something grows or has begun anew."""
        self._note = note
        self._every_ns = int(every_s * NS_PER_S)
        self._monitor = monitor
        self.condition = condition
        """Of the server that is there now: another one once it was lost and met again."""
        self._clock = clock
        self._processes = Processes(rpc_url)

    async def run(self) -> NoReturn:
        """Look again and again."""
        await self._clock.sleep_ns(min(_FIRST_NS, self._every_ns))
        while True:
            await self._look()
            await self._clock.sleep_ns(self._every_ns)

    async def _look(self) -> None:
        seen = await asyncio.to_thread(self._processes.look)
        status = await self._status()
        monitor = self._monitor
        if seen.restarted:
            monitor.server_restarted(seen.restarted)
            self._note(f"Growth of the server is counted anew: {seen.restarted}")
        values = {**_of_processes(seen), **_of_status(status)}
        for text in monitor.see(values, 0 if status is None else status.l1_used):
            self._note(f"So far, {text}")
        if seen.ours is None:
            monitor.resources.unseen(_OURS, "psutil cannot see this process")
        if seen.server is None:
            monitor.resources.unseen((*_SERVER, *_SHARED), seen.unseen)
        if status is None:
            monitor.resources.unseen(_HELD, "the server's /status does not answer")

    async def _status(self) -> ServerStatus | None:
        if self.condition.before is None:
            return None
        try:
            return await within(self.condition.read(), _STATUS_WITHIN_S)
        except OutOfTimeError:
            return None


def _of_processes(seen: Seen) -> Mapping[str, float]:
    values: dict[str, float] = {}
    if (ours := seen.ours) is not None:
        values |= dict(zip(_OURS, (ours.memory_bytes, ours.descriptors, ours.threads), strict=True))
    if (server := seen.server) is not None:
        figures = (server.memory_bytes, server.descriptors, server.threads, server.children + 1)
        values |= dict(zip(_SERVER, figures, strict=True))
        shared = (len(seen.shared_bytes), sum(seen.shared_bytes.values()))
        values |= dict(zip(_SHARED, shared, strict=True))
    return values


def _of_status(status: ServerStatus | None) -> Mapping[str, float]:
    if status is None:
        return {}
    held = (
        status.active_sessions,
        status.read_locked,
        status.write_locked,
        len(status.handle_instances | status.engine_instances),
        status.prefetches,
    )
    return dict(zip(_HELD, held, strict=True))
