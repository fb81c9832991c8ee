"""What a scenario is given, and what becomes of what it says, over a scripted server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from benchserver.check.replies import REPLIES
from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict, failed, passed
from benchserver.config.run import RunConfig
from benchserver.errors import FatalError
from benchserver.history import CallRecord, Outcome
from benchserver.stage.stage import Stage
from protocol.ops import Op
from tests.benchserver.stage.scripted import (
    ASKED,
    CHUNK_TOKENS,
    GOOD,
    SPEC,
    WORKS,
    Play,
    Server,
    played,
    run_of,
    two_acts,
)

MakeConfig = Callable[..., RunConfig]


@pytest.mark.asyncio
async def test_a_scenario_is_given_workers_and_what_their_requests_need(
    make_config: MakeConfig,
) -> None:
    server, play = Server(), Play(two_acts)
    config = make_config(spec=SPEC, num_tokens=200, tp_size=2, cache_salt="s")
    await played(config, play, server)
    (stage,) = play.seen
    crew = stage.crews[0]
    assert [worker.rank for worker in crew.workers] == [0, 1]
    assert (crew.geometry.chunks, crew.geometry.chunk_tokens) == (3, CHUNK_TOKENS)
    assert (crew.keys.cache_salt, crew.keys.world_size) == ("s", 2)
    assert crew.cross_check
    assert stage.met.connection is server.connections[0]
    assert stage.server.transport == "handle"


@pytest.mark.asyncio
async def test_it_cannot_change_what_it_is_given(make_config: MakeConfig) -> None:
    play = Play(two_acts)
    await played(make_config(spec=SPEC), play, Server())
    with pytest.raises(FrozenInstanceError):
        play.seen[0].nonce = "mine"  # type: ignore[misc]


@pytest.mark.asyncio
async def test_a_scenario_that_asked_for_no_workers_has_none(make_config: MakeConfig) -> None:
    play = Play(two_acts, workers=False)
    await played(make_config(spec=SPEC), play, Server())
    assert play.seen[0].crews == ()


@pytest.mark.asyncio
async def test_what_is_concluded_is_counted_by_its_worst_finding(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        await stage.conclude("act=0", GOOD, probes=[ASKED])
        await stage.conclude("act=1", [passed(WORKS), failed(WORKS, "not so good")])

    result = await played(make_config(spec=SPEC), Play(act), Server())
    assert (result.sequences_ok, result.sequences_failed) == (1, 1)
    assert result.ledger.tallies[WORKS].texts == ["not so good"]
    assert result.ledger.probes[ASKED].made == 1
    assert result.verdict is Verdict.INVALID


@pytest.mark.asyncio
async def test_steps_that_were_kept_back_are_told_with_the_verdict(
    make_config: MakeConfig,
) -> None:
    async def keep_back(stage: Stage) -> None:
        step = CallRecord(name="NOOP", outcome=Outcome.OK, began_ns=0, ended_ns=1)
        await stage.conclude("act=0", GOOD, steps=[("act=0", step)] * 3)

    run, notes = run_of(make_config(spec=SPEC), Play(keep_back), Server())
    await run.execute()
    assert notes.told == ["step of act=0"] * 3 + ["verdict on act=0"]


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.asyncio
async def test_a_connection_that_was_lost_ends_the_run_unless_it_is_over_anyway(
    make_config: MakeConfig, over: bool
) -> None:
    server, concluded = Server(), []

    async def act(stage: Stage) -> None:
        server.connections[0].lose()
        server.connections[0].restore()
        await stage.conclude("act=0", GOOD, fatal=FatalError("over") if over else None)
        concluded.append(over)

    result = await played(make_config(spec=SPEC), Play(act), server)
    texts = result.ledger.tallies[RUN].texts
    if over:
        assert (concluded, texts) == ([True], [])
    else:
        assert concluded == []
        assert texts == [
            "the connection to tcp://localhost:5555 was lost during act=0: a server that came "
            "back does not know our registrations"
        ]
    assert result.sequences_ok == 1
    assert result.ledger.tallies[REPLIES].texts == ["1 connections to the server were lost"]


@pytest.mark.asyncio
async def test_a_lost_connection_loses_no_registrations_where_there_are_none(
    make_config: MakeConfig,
) -> None:
    server = Server()

    async def act(stage: Stage) -> None:
        server.connections[0].lose()
        server.connections[0].restore()
        await stage.conclude("act=0", GOOD)

    result = await played(make_config(spec=SPEC), Play(act, workers=False), server)
    assert result.ledger.tallies[RUN].texts == [
        "the connection to tcp://localhost:5555 was lost during act=0"
    ]


@pytest.mark.asyncio
async def test_each_client_has_workers_connections_and_lookups_of_its_own(
    make_config: MakeConfig,
) -> None:
    server, play = Server(), Play(two_acts, clients=3)
    result = await played(make_config(spec=SPEC, tp_size=2), play, server)
    assert result.verdict is Verdict.VALID
    crews = play.seen[0].crews
    assert [crew.number for crew in crews] == [0, 1, 2]
    workers = [worker for crew in crews for worker in crew.workers]
    assert [worker.place for worker in workers] == [
        f"client={client} rank={rank}" for client in range(3) for rank in range(2)
    ]
    assert [worker.rpc for worker in workers] == server.connections
    assert play.seen[0].met.connection is workers[0].rpc
    assert len({worker.instance_id & 0xFFF for worker in workers}) == 6
    assert len({crew.instances for crew in crews}) == 3
    assert len({id(crew.desk) for crew in crews}) == 3
    assert all(connection.ops.count(Op.PING) == 1 for connection in server.connections)
    assert not server.registered
