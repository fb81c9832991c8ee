"""What is done after the reply: stores that never end, devices that fail, events that are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.refserver.gpu.watch import Watcher
from benchserver.refserver.refusal import RefusalError
from tests.benchserver.refserver.gpu.clients import (
    Client,
)

pytestmark = pytest.mark.torch


@pytest.mark.asyncio
async def test_a_store_that_never_ends_is_dropped_and_its_memory_stays_taken(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(_: Any, is_done: Callable[[], bool], **__: Any) -> bool:
        return is_done()

    monkeypatch.setattr(Watcher, "ended", at_once)

    def note_hold(client: Client, dropped: asyncio.Event) -> Callable[[Any], None]:
        hold = client.stage.core.cache.hold

        def noted(slots: Any) -> None:
            hold(slots)
            # What is held is dropped in the same step, before anybody else runs.
            dropped.set()

        return noted

    dropped = asyncio.Event()
    used_bytes = client.counts().used_bytes
    client.streams[0].busy = True
    assert (await client.store("a")).ok
    taken = client.counts().used_bytes
    monkeypatch.setattr(client.stage.core.cache, "hold", note_hold(client, dropped))
    late = asyncio.ensure_future(client.settle())
    await dropped.wait()
    assert client.counts().objects == 0
    assert client.counts().used_bytes == taken > used_bytes
    assert client.stage.core.registry.mapped[0].uses.count == 1
    client.streams[0].busy = False
    await late
    assert client.counts().used_bytes == used_bytes
    assert client.stage.core.registry.mapped[0].uses.count == 0
    assert any(line.count("STORE: not done on the GPU 30 s") for line in client.stage.lines)


@pytest.mark.asyncio
async def test_a_device_that_fails_after_the_reply_costs_the_store_and_no_more(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any, **__: Any) -> bool:
        raise RefusalError("an event of this server: CUDA error: unspecified launch failure")

    monkeypatch.setattr(Watcher, "ended", fail)

    assert (await client.store("a")).ok
    await client.settle()
    assert client.counts().objects == 0
    assert any("STORE: failed on the GPU" in line for line in client.stage.lines)


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", ["drop_store", "stuck_store", "late_read"])
async def test_an_early_acknowledgement_carries_an_event_that_has_completed(
    client: Client, fault: str
) -> None:
    client.stage.switch(fault)
    reply = await client.store("a")
    assert (reply.ok, len(reply.event)) == (True, 64)
    assert int.from_bytes(reply.event, "big") == client.streams[0].recorded == 1
