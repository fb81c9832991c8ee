"""Pings over a scripted server, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict
from benchserver.client.scripted import NEVER, in_turn
from benchserver.clock import NS_PER_S
from benchserver.scenarios.ping.checks import ANSWERS, CHUNK_SIZE, PONG
from benchserver.scenarios.ping.config import PingConfig
from benchserver.scenarios.ping.scenario import Ping, requests
from protocol.dialects import DIALECTS
from protocol.ops import Op
from tests.benchserver.stage.runs import MakeConfig
from tests.benchserver.stage.scripted import CHUNK_TOKENS, Server, played


def ping(count: int, interval_s: float = 0.0) -> Any:
    return Ping(PingConfig(count=count, interval_s=interval_s))


@pytest.mark.asyncio
async def test_each_round_asks_twice_and_registers_nothing(make_config: MakeConfig) -> None:
    server = Server()
    result = await played(make_config(), ping(3), server)
    assert (result.verdict, result.sequences_ok) == (Verdict.VALID, 3)
    assert server.ops[2:] == [Op.GET_CHUNK_SIZE, Op.PING] * 3
    assert server.connections[0].calls[3] == (Op.PING, None)
    counts = {s.name: latencies.summary() for s, latencies in result.measures.latencies.items()}
    assert {name: s and s.count for name, s in counts.items()} == {"GET_CHUNK_SIZE": 3, "PING": 3}


@pytest.mark.asyncio
async def test_rounds_are_an_interval_apart(make_config: MakeConfig) -> None:
    server = Server()
    await played(make_config(), ping(3, interval_s=2.5), server)
    assert server.clock.now_ns() == 5 * NS_PER_S


@pytest.mark.asyncio
async def test_a_release_without_ping_is_asked_for_its_chunk_size_alone(
    make_config: MakeConfig,
) -> None:
    server = Server(version="0.4.1")
    result = await played(make_config(server_release="0.4.1"), ping(1), server)
    assert result.verdict is Verdict.VALID
    assert result.ledger.not_evaluated()["pong"] == "release 0.4.1 has no PING"
    assert Op.PING not in server.ops


def test_every_release_is_asked_what_it_knows() -> None:
    for dialect in DIALECTS:
        for op, args in requests(dialect):
            assert len(args) == len(dialect.ops[op].payload)


@pytest.mark.asyncio
async def test_wrong_answers_fail(make_config: MakeConfig) -> None:
    sizes = in_turn(CHUNK_TOKENS, CHUNK_TOKENS, 128)
    server = Server(script={Op.GET_CHUNK_SIZE: sizes, Op.PING: in_turn(False, True)})
    result = await played(make_config(), ping(2), server)
    assert result.verdict is Verdict.INVALID
    assert result.ledger.tallies[CHUNK_SIZE].texts == [
        "ping=1: GET_CHUNK_SIZE answered 128, 64 before: two servers listen at --rpc-url, or it "
        "was restarted"
    ]
    assert result.ledger.tallies[PONG].texts == ["ping=0: PING answered False, expected True"]


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.asyncio
async def test_silence_ends_a_ping_unless_the_server_answers_something_else(
    make_config: MakeConfig, alive: bool
) -> None:
    script = {Op.PING: in_turn(NEVER, True)} | ({} if alive else {Op.NOOP: NEVER})
    result = await played(make_config(), ping(3), Server(script=script))
    assert result.ledger.tallies[ANSWERS].texts == ["ping=0: PING: no answer within 1 s"]
    assert (result.sequences_unproven, result.sequences_ok) == (1, 2 if alive else 0)
    assert result.verdict is (Verdict.UNKNOWN if alive else Verdict.INVALID)
    texts = result.ledger.tallies[RUN].texts
    assert ["its RPC thread is dead or stuck" in text for text in texts] == (
        [] if alive else [True]
    )
