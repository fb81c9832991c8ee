"""First contact over a scripted server: what is asked, in which order, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from benchserver.check.run import new_ledger
from benchserver.client.scripted import NEVER, in_turn
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.errors import FatalError, UsageError
from benchserver.geometry import Geometry
from benchserver.result import ServerFacts
from benchserver.stage.connections import Connections
from benchserver.stage.meeting import Meeting, Met
from benchserver.stage.opened import Opened
from protocol.ops import Op
from tests.benchserver.stage.runs import MakeConfig
from tests.benchserver.stage.scripted import CHUNK_TOKENS, NO_HTTP, SPEC, Server


@dataclass
class Contact:
    """A meeting, and what came of it."""

    config: RunConfig
    server: Server
    facts: ServerFacts = field(
        default_factory=lambda: ServerFacts(rpc_url="tcp://x:1", http_url="http://x:2")
    )
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ledger, clock = new_ledger(()), self.server.clock
        self.opened = Opened(connections=Connections(clock=clock, ledger=ledger))
        self.meeting = Meeting(
            self.config.target,
            self.config.engine,
            self.opened,
            server=self.facts,
            ledger=ledger,
            clock=clock,
            note=self.notes.append,
        )

    async def meet(self) -> Met:
        try:
            return await self.meeting.meet(self.server.outside())
        finally:
            await self.opened.connections.close()


@pytest.mark.asyncio
async def test_a_release_that_the_server_says_is_confirmed_before_anything_else(
    make_config: MakeConfig,
) -> None:
    contact = Contact(make_config(), Server(version="0.5.6-g1"))
    met = await contact.meet()
    assert contact.server.ops == [Op.WAIT_PREFETCH_STATUS, Op.GET_CHUNK_SIZE]
    assert (met.dialect.name, met.http.routes) == ("0.5.6", met.dialect.http)
    facts = contact.facts
    assert (facts.version, facts.release, facts.chunk_tokens) == ("0.5.6-g1", "0.5.6", CHUNK_TOKENS)
    assert contact.opened.condition is met.condition
    assert contact.opened.connections.opened == [met.connection]
    assert contact.notes[1:] == [
        "Server version = 0.5.6-g1, spoken to as 0.5.6, seed = 7",
        f"Server chunk_size = {CHUNK_TOKENS}",
    ]


@pytest.mark.asyncio
async def test_a_release_that_nobody_says_is_asked_for_and_not_confirmed_again(
    make_config: MakeConfig,
) -> None:
    # It answers the fifth question, as 0.4.6 does.
    noops = in_turn(NEVER, NEVER, NEVER, NEVER, "OK")
    contact = Contact(make_config(), Server(version=NO_HTTP, script={Op.NOOP: noops}))
    met = await contact.meet()
    assert met.dialect.name == "0.4.6"
    assert contact.notes[1] == "Server version unknown: GET /status: refused"
    assert contact.notes[2].startswith("No release is known: asking the server harmless questions")
    # Each question has a connection of its own, closed again; the last one is the run's.
    *_, last = contact.server.connections
    assert last.ops == [Op.GET_CHUNK_SIZE]
    assert contact.opened.connections.opened == [last]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NEVER, "is reachable, but GET_CHUNK_SIZE: no answer within 1 s; it is not an LMCache MP"),
        (0, "GET_CHUNK_SIZE answered 0, expected a positive size"),
        (-256, "GET_CHUNK_SIZE answered -256"),
        ((1 << 24) + 1, "GET_CHUNK_SIZE answered 16777217"),
    ],
)
@pytest.mark.asyncio
async def test_a_chunk_size_that_is_none_ends_the_meeting(
    make_config: MakeConfig, answer: Any, words: str
) -> None:
    contact = Contact(make_config(), Server(script={Op.GET_CHUNK_SIZE: answer}))
    with pytest.raises(FatalError) as caught:
        await contact.meet()
    assert words in str(caught.value)


async def fitted(contact: Contact, in_flight: int = 1) -> tuple[Engine, Geometry]:
    await contact.meet()
    assert contact.config.engine is not None
    return contact.meeting.fit(contact.config.engine, in_flight)


@pytest.mark.asyncio
async def test_requests_are_fitted_to_the_chunks_of_the_server(make_config: MakeConfig) -> None:
    contact = Contact(make_config(spec=SPEC, num_tokens=200), Server())
    engine, geometry = await fitted(contact)
    assert engine is contact.config.engine
    assert geometry == Geometry(spec=engine.spec, chunk_tokens=CHUNK_TOKENS, num_tokens=200)
    assert contact.notes[-1] == f"Resolved KV shape spec: {SPEC}"


@pytest.mark.asyncio
async def test_a_number_of_tokens_that_nobody_asked_for_becomes_one_chunk(
    make_config: MakeConfig,
) -> None:
    config = make_config(spec=SPEC, num_tokens=32, num_tokens_given=False)
    contact = Contact(config, Server())
    fit, geometry = await fitted(contact)
    assert (fit.num_tokens, geometry.chunks) == (CHUNK_TOKENS, 1)
    assert contact.notes[-1] == "--num-tokens = 64, one chunk: the default of 32 holds none"


@pytest.mark.asyncio
async def test_requests_that_do_not_fit_are_wrong_usage(make_config: MakeConfig) -> None:
    contact = Contact(make_config(spec=SPEC, num_tokens=63), Server())
    with pytest.raises(UsageError, match="less than one chunk of 64 tokens"):
        await fitted(contact)
