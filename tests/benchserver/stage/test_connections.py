"""Connections of a run: kept or lent, watched, counted and closed; over a script."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from benchserver.check.replies import REPLIES
from benchserver.check.run import new_ledger
from benchserver.check.verdict import Ledger
from benchserver.client.connection import NoAnswerError
from benchserver.client.scripted import Answer, ScriptedConnector
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_MS, NS_PER_S, RealClock, VirtualClock, idle
from benchserver.config.run import RunConfig
from benchserver.errors import FatalError
from benchserver.stage import connections
from benchserver.stage.connections import Connections, reach_zmq
from protocol.dialects import V056
from protocol.ops import Op

MakeConfig = Callable[..., RunConfig]


@dataclass
class Reached:
    """Connections to a server that was reached."""

    script: dict[Op, Any] = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    ledger: Ledger = field(default_factory=lambda: new_ledger(()))

    def __post_init__(self) -> None:
        self.connections = Connections(clock=self.clock, ledger=self.ledger)
        self.connector = ScriptedConnector(self.script, clock=self.clock, timeout_ns=NS_PER_S)
        self.connections.reached(self.connector)


@pytest_asyncio.fixture
async def reached() -> AsyncIterator[Reached]:
    made = Reached()
    yield made
    await made.connections.close()


def test_nothing_is_opened_before_a_server_was_reached() -> None:
    connections = Connections(clock=VirtualClock(), ledger=new_ledger(()))
    with pytest.raises(LookupError, match="no server was reached"):
        connections.open(V056)
    assert connections.opened == []


@pytest.mark.asyncio
async def test_there_may_be_nothing_to_close() -> None:
    await Connections(clock=VirtualClock(), ledger=new_ledger(())).close()


@pytest.mark.asyncio
async def test_those_of_ranks_are_kept_and_those_of_questions_are_not(reached: Reached) -> None:
    first, second = (reached.connections.open(V056) for _ in range(2))
    question = reached.connections.ask(V056)
    assert reached.connections.opened == [first, second]
    assert len(reached.connector.connections) == 3
    await question.close()


@pytest.mark.asyncio
async def test_lost_connections_are_counted_over_all(reached: Reached) -> None:
    for _ in range(2):
        reached.connections.open(V056)
    assert reached.connections.lost == 0
    for connection in reached.connector.connections:
        connection.lose()
        connection.restore()
        connection.lose()
    assert reached.connections.lost == 4


@pytest.mark.asyncio
async def test_a_reply_that_nobody_waits_for_goes_to_the_ledger_with_its_rank() -> None:
    reached = Reached(script={Op.NOOP: Answer(result="OK", times=2)})
    await reached.connections.open(V056, "rank=3").call(Op.NOOP)
    await reached.clock.sleep_ns(NS_PER_MS)
    (text,) = reached.ledger.tallies[REPLIES].texts
    assert text == "rank=3: duplicate reply to NOOP (uid 0)"
    await reached.connections.close()


@pytest.mark.parametrize("withdrawn", [False, True])
@pytest.mark.asyncio
async def test_a_late_reply_counts_unless_we_gave_up_ourselves(withdrawn: bool) -> None:
    """Nor does it prove anything if the server was never heard of: it may have been stopped."""
    reached = Reached(script={Op.NOOP: Answer(result="OK", after_ns=20 * NS_PER_MS)})
    connection = reached.connections.open(V056)
    call = asyncio.ensure_future(connection.call(Op.NOOP, timeout_ns=10 * NS_PER_MS))
    if withdrawn:
        await reached.clock.sleep_ns(NS_PER_MS)
        call.cancel()
    with pytest.raises(asyncio.CancelledError if withdrawn else NoAnswerError):
        await call
    await reached.clock.sleep_ns(NS_PER_S)
    tally = reached.ledger.tallies[REPLIES]
    assert (tally.failed, tally.unproven) == (0, 0 if withdrawn else 1)
    await reached.connections.close()


@pytest.mark.asyncio
async def test_a_port_at_which_something_listens_is_reached_by_zmq(make_config: MakeConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        connector = await reach_zmq(make_config(rpc_url=url).target, RealClock())
    assert isinstance(connector, ZmqConnector)
    await connector.close()


@pytest.mark.asyncio
async def test_a_port_at_which_nothing_listens_is_not(make_config: MakeConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(FatalError, match=f"127.0.0.1:{port}"):
        await reach_zmq(make_config(rpc_url=f"tcp://127.0.0.1:{port}").target, RealClock())


@pytest.mark.asyncio
async def test_a_judgement_that_fails_itself_is_unknown_and_breaks_nothing(
    reached: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("no such event")

    monkeypatch.setattr(connections, "judge_event", broken)
    reached.script[Op.NOOP] = Answer(result="OK", times=2)
    await reached.connections.open(V056, "rank=3").call(Op.NOOP)
    await idle()
    tally = reached.ledger.tallies[REPLIES]
    assert (tally.failed, tally.unproven) == (0, 1)
    assert tally.texts[0].startswith("rank=3: the check itself failed, KeyError: 'no such event'")
