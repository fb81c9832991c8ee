"""A server that is lost and comes back, over a scripted one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchserver.check.replies import REPLIES
from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict, failed
from benchserver.client.scripted import NEVER
from benchserver.clock import NS_PER_S
from benchserver.config.run import RunConfig
from benchserver.errors import ServerGoneError, ServerLostError, ServerSilentError
from benchserver.result import RunResult
from benchserver.stage.stage import Stage
from protocol.ops import Op
from tests.benchserver.stage.scripted import GOOD, SPEC, WORKS, Play, Server, run_of, two_acts

MakeConfig = Callable[..., RunConfig]


@dataclass
class Restarting(Play):
    """A play that is played on, each time on another stage."""

    stages: list[Stage] = field(default_factory=list)

    async def play(self, stage: Stage) -> None:
        self.stages.append(stage)
        await self.act(stage)


@dataclass
class Ended:
    """How a run came out."""

    result: RunResult
    notes: list[str]
    play: Restarting

    @property
    def restarts(self) -> Any:
        return next(s.document for s in self.result.sections if s.key == "reconnects")

    def texts(self, check: Any) -> list[str]:
        return self.result.ledger.tallies[check].texts


async def run(
    config: RunConfig, acts: Iterator[Callable[[Stage], Any]], server: Server, **changes: Any
) -> Ended:
    async def act(stage: Stage) -> None:
        await next(acts)(stage)

    play = Restarting(act, **changes)
    one, notes = run_of(config, play, server)
    return Ended(await one.execute(), notes.notes, play)


def lose(server: Server) -> Callable[[Stage], Any]:
    """Return an act whose server is restarted in its middle, and answers as if it were well."""

    async def act(stage: Stage) -> None:
        await stage.conclude("act=0", GOOD)
        connection = server.connectors[-1].connections[0]
        connection.lose()
        connection.restore()
        server.registered.clear()
        await stage.conclude("act=1", [failed(WORKS, "it does not know us")])

    return act


@pytest.mark.asyncio
async def test_a_run_that_may_reconnect_registers_again_and_goes_on(
    make_config: MakeConfig,
) -> None:
    server = Server()
    config = make_config(spec=SPEC, tp_size=2, reconnect=True)
    ended = await run(config, iter([lose(server), two_acts]), server)
    assert ended.result.verdict is Verdict.VALID, ended.notes
    assert ended.result.sequences_ok == 3
    assert (ended.restarts["count"], ended.restarts["cut_short"]) == (1, 1)
    first, second = ended.play.stages
    assert second.crews[0].workers[0].rpc is not first.crews[0].workers[0].rpc
    assert first.crews[0].instances == second.crews[0].instances
    assert server.registered == set()
    assert "[act=1] cut short: the server was lost" in ended.notes


@pytest.mark.asyncio
async def test_without_it_the_loss_is_a_failure_and_what_was_found_counts(
    make_config: MakeConfig,
) -> None:
    server = Server()
    ended = await run(make_config(spec=SPEC), iter([lose(server)]), server)
    assert ended.texts(WORKS) == ["it does not know us"]
    assert "was lost during act=1" in ended.texts(RUN)[0]
    assert "The server was lost: --reconnect would wait for it" in ended.notes
    assert ended.texts(REPLIES)


@pytest.mark.parametrize("workers", [True, False])
@pytest.mark.parametrize("error", [ServerGoneError, ServerSilentError, ServerLostError])
@pytest.mark.asyncio
async def test_a_server_that_answers_again_is_left_first_and_met_again(
    make_config: MakeConfig, error: type[Exception], workers: bool
) -> None:
    async def silent(stage: Stage) -> None:
        await stage.conclude("act=0", GOOD)
        raise error("no answer")

    server = Server()
    config = make_config(spec=SPEC, reconnect=True)
    ended = await run(config, iter([silent, two_acts]), server, workers=workers)
    assert ended.result.verdict is Verdict.VALID
    assert any("it was stopped, and keeps what it had" in text for text in ended.notes)
    if workers:
        assert server.connectors[0].connections[0].ops.count(Op.UNREGISTER_KV_CACHE) == 1


@pytest.mark.asyncio
async def test_one_that_does_not_come_back_in_time_ends_the_run_with_why(
    make_config: MakeConfig,
) -> None:
    server = Server()

    async def hang(stage: Stage) -> None:
        server.script[Op.GET_CHUNK_SIZE] = lambda: NEVER
        server.connectors[-1].connections[0].lose()
        raise ServerGoneError("it is gone")

    config = make_config(spec=SPEC, reconnect=True, reconnect_within_s=5.0)
    ended = await run(config, iter([hang]), server)
    [text] = ended.texts(RUN)
    said = "it is gone; it did not come back within --reconnect-within 5 s; the last try: "
    assert text.startswith(said)
    assert text.count("GET_CHUNK_SIZE") == 1
    assert ended.result.verdict is Verdict.INVALID


@pytest.mark.asyncio
async def test_another_server_in_its_place_is_not_gone_on_with(make_config: MakeConfig) -> None:
    server = Server()

    async def change(stage: Stage) -> None:
        server.script[Op.GET_CHUNK_SIZE] = 128
        raise ServerGoneError("it is gone")

    ended = await run(make_config(spec=SPEC, reconnect=True), iter([change]), server)
    assert "with chunks of 128 tokens, it was 0.5.6 with 64" in ended.texts(RUN)[0]


@pytest.mark.parametrize(("keep_going", "played"), [(False, 2), (True, 4)])
@pytest.mark.asyncio
async def test_a_run_ends_after_so_many_failures_unless_it_keeps_going(
    make_config: MakeConfig, keep_going: bool, played: int
) -> None:
    async def bad(stage: Stage) -> None:
        for number in range(4):
            await stage.conclude(f"act={number}", [failed(WORKS, "bad")])

    config = make_config(spec=SPEC, max_failures=2, keep_going=keep_going)
    ended = await run(config, iter([bad]), Server())
    assert ended.result.sequences_failed == played
    text = "ended early: 2 failed, as many as --max-failures allows"
    assert (text in ended.texts(RUN)) is not keep_going


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.asyncio
async def test_a_ping_that_a_frozen_server_missed_counts_only_if_it_answered_others(
    make_config: MakeConfig, frozen: bool
) -> None:
    server = Server()

    async def freeze(stage: Stage) -> None:
        script: Any = server.connectors[0]._script
        script[Op.PING] = NEVER
        if frozen:
            script[Op.NOOP] = NEVER
        await stage.clock.sleep_ns(15 * NS_PER_S)
        script[Op.PING], script[Op.NOOP] = True, "OK"
        await stage.conclude("act=0", GOOD)
        raise ServerSilentError("no answer")

    config = make_config(spec=SPEC, reconnect=True)
    ended = await run(config, iter([freeze, two_acts]), server)
    assert ended.result.verdict is (Verdict.VALID if frozen else Verdict.UNKNOWN)
    assert bool(ended.texts(REPLIES)) is not frozen
