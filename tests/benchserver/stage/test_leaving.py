"""How a run leaves its server: what is sent, in which order, and what is made of silence."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from benchserver.check.replies import REPLIES
from benchserver.check.run import new_ledger
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Check, Ledger
from benchserver.client.connection import NoAnswerError
from benchserver.client.lookups import OpenRequest
from benchserver.clock import NS_PER_MS, NS_PER_S, VirtualClock
from benchserver.history import EndRecord, Outcome
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import PROBES
from benchserver.stage import leaving as leaving_module
from benchserver.stage.connections import Connections
from benchserver.stage.leaving import Leaving
from benchserver.stage.opened import Opened
from benchserver.tasks import Finishing
from protocol.messages import Reply
from protocol.ops import Op

REQUEST = OpenRequest(keys=cast(Any, None), tokens=(), end=0, request_id="r")


@dataclass
class Server:
    """Everything that a run has open on a server, and the server: it notes what it is told.

    `noops` are its answers to NOOP, True or False, the last one for ever; `ends` whether it answers
    END_SESSION, `unregistered` what becomes of UNREGISTER.
    """

    noops: list[bool] = field(default_factory=lambda: [True])
    ends: bool = True
    unregistered: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    instances: frozenset[int] = frozenset({7})
    open_requests: dict[str, Any] = field(default_factory=lambda: {"r": REQUEST})
    stuck: bool = False

    async def wait(self) -> None:
        self.told.append("finish")

    async def call(self, op: Op, *, timeout_ns: int) -> Reply:
        self.told.append(f"{op.name} {timeout_ns // NS_PER_MS}")
        if not (self.noops.pop(0) if len(self.noops) > 1 else self.noops[0]):
            raise NoAnswerError(op, "no answer")
        return Reply(uid=0, op=op, result="OK", latency_ns=1)

    async def settle(self, request: OpenRequest, *, timeout_ns: int) -> list[EndRecord]:
        assert request is REQUEST
        self.told.append(f"settle {timeout_ns // NS_PER_MS}")
        if self.stuck:
            await asyncio.Event().wait()
        self.open_requests.clear()
        outcome = Outcome.OK if self.ends else Outcome.UNKNOWN
        return [
            EndRecord(
                name="END_SESSION",
                request_id="r",
                began_ns=0,
                ended_ns=1,
                outcome=outcome,
                reason="no answer",
            )
        ]

    async def unregister(self, *, timeout_ns: int) -> list[str]:
        self.told.append(f"unregister {timeout_ns // NS_PER_MS}")
        return self.unregistered

    async def audit(self, ours: frozenset[int], *, registered: bool) -> None:
        assert ours == self.instances
        self.told.append(f"audit {registered}")


@dataclass
class Connected:
    """The connections of a run."""

    opened: list[Any]


async def leave(
    server: Server,
    *,
    silent: bool = False,
    interrupted: bool = False,
    opened: bool = True,
    silent_after: bool = False,
) -> tuple[list[str], Ledger]:
    ledger, anything = new_ledger(CHECKS, PROBES), cast(Any, server)
    leaving = Leaving(
        Opened(
            connections=cast(Connections, Connected([anything])),
            finishing=anything if opened else Finishing(),
            condition=anything,
            desks=[anything] if opened else [],
            workforce=anything if opened else None,
        ),
        clock=VirtualClock(),
        ledger=ledger,
        silent=silent,
        interrupted=interrupted,
    )
    await leaving.leave()
    assert leaving.silent is silent_after
    return server.told, ledger


def texts(ledger: Ledger) -> dict[Check, list[str]]:
    return {check: tally.texts for check, tally in ledger.tallies.items() if tally.texts}


@pytest.mark.asyncio
async def test_all_is_ended_and_the_socket_is_looked_at_once_more_before_the_last_count() -> None:
    told, ledger = await leave(Server())
    assert told == [
        *("finish", "settle 2000", "audit True", "unregister 2000", "NOOP 2000", "audit False")
    ]
    assert not texts(ledger)


@pytest.mark.asyncio
async def test_after_an_interruption_the_server_is_asked_whether_waiting_is_worth_it() -> None:
    told, ledger = await leave(Server(), interrupted=True)
    assert told == [
        *("finish", "NOOP 700", "settle 2000", "unregister 2000", "NOOP 2000", "audit False")
    ]
    assert not texts(ledger)


@pytest.mark.asyncio
async def test_a_server_that_answers_again_is_left_as_any_other() -> None:
    told, ledger = await leave(Server(), silent=True)
    assert told == [
        *("finish", "NOOP 10000", "settle 2000", "audit True"),
        *("unregister 2000", "NOOP 2000", "audit False"),
    ]
    assert not texts(ledger)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.asyncio
async def test_a_silent_server_is_told_all_the_same_and_nobody_waits(interrupted: bool) -> None:
    """It may be stopped, and read it later: then it keeps neither session nor registration."""
    server = Server(noops=[False], ends=False, unregistered=["rank=0: UNREGISTER: no answer"])
    told, ledger = await leave(
        server, silent=not interrupted, interrupted=interrupted, silent_after=True
    )
    asked = "NOOP 700" if interrupted else "NOOP 10000"
    assert told == ["finish", asked, "settle 50", "unregister 50"]
    assert texts(ledger) == {
        SESSIONS: ["at the end of the run: END_SESSION: no answer"],
        REPLIES: ["rank=0: UNREGISTER: no answer; whether that registration is gone is unknown"],
    }


@pytest.mark.asyncio
async def test_an_unregister_without_an_answer_proves_nothing() -> None:
    server = Server(unregistered=["rank=1: UNREGISTER_KV_CACHE: no answer within 2 s"])
    _, ledger = await leave(server)
    tally = ledger.tallies[REPLIES]
    assert (tally.unproven, tally.failed) == (1, 0)
    assert tally.texts == [
        "rank=1: UNREGISTER_KV_CACHE: no answer within 2 s; whether that registration is gone is "
        "unknown"
    ]


@pytest.mark.asyncio
async def test_a_last_look_without_an_answer_proves_nothing() -> None:
    _, ledger = await leave(Server(noops=[False]))
    assert texts(ledger) == {REPLIES: ["at the end of the run: NOOP: no answer"]}


@pytest.mark.asyncio
async def test_the_last_look_takes_longer_than_a_breath() -> None:
    """A server that answers twice sends both answers at once; the second may be on its way."""
    clock = VirtualClock()
    server = cast(Any, Server())
    leaving = Leaving(
        Opened(connections=cast(Connections, Connected([server])), workforce=server),
        clock=clock,
        ledger=new_ledger(CHECKS, PROBES),
        silent=False,
        interrupted=False,
    )
    await leaving.leave()
    assert 10 * NS_PER_MS <= clock.now_ns() < NS_PER_S


@pytest.mark.asyncio
async def test_a_run_that_opened_nothing_has_nothing_to_end() -> None:
    told, ledger = await leave(Server(instances=frozenset()), opened=False)
    assert (told, texts(ledger)) == (["audit False"], {})


@pytest.mark.asyncio
async def test_a_request_that_is_not_ended_does_not_keep_the_workers_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving_module, "_SETTLE_SHORTLY_S", 0.01)
    told, ledger = await leave(Server(stuck=True), interrupted=True)
    assert told == [
        *("finish", "NOOP 700", "settle 2000", "unregister 2000", "NOOP 2000", "audit False")
    ]
    assert texts(ledger) == {
        SESSIONS: ["at the end of the run: 1 requests could not be ended in time, r for one"]
    }
