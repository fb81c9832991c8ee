"""One embedded server for all runs of a file, and what makes runs against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchserver.client.zmq import ZmqConnection
from protocol.messages import Reply, TransferResult
from protocol.ops import Op
from tests.benchserver.stage.runs import EVENT, Machine, MakeConfig, RunMaker
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


@pytest.fixture
def play(server: Urls, make_config: MakeConfig) -> RunMaker:
    return RunMaker(server, make_config)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every reply to STORE and RETRIEVE that says True hold an event."""
    call = ZmqConnection.call

    async def call_with_event(self: ZmqConnection, op: Op, *args: Any, **options: Any) -> Reply:
        reply = await call(self, op, *args, **options)
        if op in (Op.STORE, Op.RETRIEVE) and reply.result.ok:
            return reply._replace(result=TransferResult(event=EVENT, ok=True))
        return reply

    monkeypatch.setattr(ZmqConnection, "call", call_with_event)
