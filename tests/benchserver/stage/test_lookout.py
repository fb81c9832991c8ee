"""Looks at what a run and its server hold, while it goes on."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from benchserver.check.growth import GROWTH
from benchserver.check.verdict import Ledger
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.monitor.monitor import Monitor
from benchserver.monitor.snapshot import ResourceNow
from benchserver.stage.lookout import Lookout
from benchserver.stats.measures import Measures
from protocol.httpapi import ServerStatus
from tests.benchserver.monitor.test_processes import listening


class Said:
    """A condition that says what a test lets it say."""

    before: object = object()
    silent = False

    def __init__(self) -> None:
        self.sessions = 0

    async def read(self) -> ServerStatus | None:
        if self.silent:
            return None
        self.sessions += 1
        return ServerStatus(
            chunk_size=256,
            active_sessions=self.sessions,
            read_locked=3,
            write_locked=4,
            handle_instances=frozenset({7, 8}),
            engine_instances=frozenset({8}),
            prefetches=5,
        )


class Looking:
    """A lookout at work, and the run that it tells of."""

    def __init__(self, said: Said, rpc_url: str) -> None:
        self.clock = VirtualClock(by_hand=True)
        self.monitor = Monitor(
            unit="try", ledger=Ledger([GROWTH]), measures=Measures(), clock=self.clock
        )
        self.notes: list[str] = []
        lookout = Lookout(
            self.monitor,
            cast(Any, said),
            rpc_url,
            every_s=5.0,
            clock=self.clock,
            note=self.notes.append,
        )
        self.task = asyncio.ensure_future(lookout.run())

    async def looked(self, times: int) -> dict[str, ResourceNow]:
        """Return what is known after so many looks."""
        await self.clock.until_asleep(1)
        for _ in range(times):
            await self.clock.move_ns(5 * NS_PER_S)
            await self.clock.until_asleep(1)
        self.task.cancel()
        return {one.name: one for one in self.monitor.snapshot().resources}


@pytest.mark.asyncio
async def test_it_tells_what_processes_hold_and_what_status_says() -> None:
    with listening() as (_, port):
        known = await Looking(Said(), f"tcp://127.0.0.1:{port}").looked(2)
    assert {one.value is not None for one in known.values()} == {True}
    assert known["server sessions"].value == 2
    assert known["server read locks"].value == 3
    assert known["server write locks"].value == 4
    assert known["server registrations"].value == 2
    assert known["server prefetches"].value == 5
    assert known["server processes"].value == 1
    assert known["shared memory names"].value == 0
    assert (known["our descriptors"].value or 0) >= len(os.listdir("/proc/self/fd")) - 8


@pytest.mark.asyncio
async def test_what_cannot_be_seen_is_said_with_the_reason() -> None:
    said = Said()
    said.silent = True
    known = await Looking(said, "tcp://192.0.2.1:1").looked(1)
    reasons = {one.reason for one in known.values() if one.verdict == "not measured"}
    assert reasons == {
        "the server is not on this host's loopback address",
        "the server's /status does not answer",
    }
    assert {one.side for one in known.values() if one.value is not None} == {"ours"}


@pytest.mark.asyncio
async def test_a_server_without_http_is_not_asked() -> None:
    said = Said()
    said.before = None
    known = await Looking(said, "tcp://192.0.2.1:1").looked(1)
    assert known["server sessions"].verdict == "not measured"
    assert said.sessions == 0
