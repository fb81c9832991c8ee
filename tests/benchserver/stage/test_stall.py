"""Runs in which nothing happens any more: which side is silent, in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.run import RUN
from benchserver.check.verdict import Verdict
from benchserver.client.http import HttpFailedError
from benchserver.client.scripted import NEVER
from benchserver.clock import NS_PER_S
from benchserver.result import RunResult
from benchserver.stage.outside import Outside
from benchserver.stage.stage import Stage
from benchserver.stage.stall import tick_s
from protocol.ops import Op
from tests.benchserver.stage.runs import MakeConfig
from tests.benchserver.stage.scripted import GOOD, SPEC, Play, Server, played

_STALLED = "stalled: no answer, and nothing concluded, for 30 s; "
_STACKS = "; our own stacks are on stderr"

Act = Callable[[Stage], Awaitable[None]]


class Showing(Server):
    """A server of a run whose stacks are kept."""

    def outside(self) -> Outside:
        self.shown: list[str] = []
        return replace(super().outside(), show_stacks=self.shown.append)


async def hang(_: Stage) -> None:
    await asyncio.Event().wait()


async def end_of(make_config: MakeConfig, act: Act, server: Server, **options: Any) -> RunResult:
    config = make_config(spec=SPEC, **{"stall_after_s": 30.0, **options})
    return await played(config, Play(act), server)


def said_of(result: RunResult) -> str:
    (text,) = result.ledger.tallies[RUN].texts
    assert text.startswith(_STALLED)
    assert text.endswith(_STACKS)
    return text[len(_STALLED) : -len(_STACKS)]


@pytest.mark.asyncio
async def test_a_deadlock_of_our_own_is_ours_and_its_stacks_are_shown(
    make_config: MakeConfig,
) -> None:
    """PINGs, which are answered all the time, say nothing of the work."""
    server = Showing()
    result = await end_of(make_config, hang, server)
    assert said_of(result) == (
        "the server answers others over RPC and HTTP; our own process is stuck: it waits for no "
        "answer over RPC, and no thread of it is at work"
    )
    assert result.ledger.tallies[RUN].verdict is Verdict.INVALID
    assert server.clock.now_ns() < 40 * NS_PER_S
    assert Op.PING in server.ops
    (shown,) = server.shown
    assert "in hang\n" in shown
    assert not server.registered


@pytest.mark.asyncio
async def test_work_of_a_thread_that_does_not_end_is_named(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        stage.threads._under_way.add(asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
        try:
            await hang(stage)
        finally:
            stage.threads._under_way.clear()

    text = said_of(await end_of(make_config, act, Showing()))
    assert text.endswith("and its threads do not end what they are at (1 under way)")


@pytest.mark.asyncio
async def test_a_server_that_owes_an_answer_and_gives_others_is_named(
    make_config: MakeConfig,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.met.connection.call(Op.END_SESSION, "r", timeout_ns=10**15)

    server = Showing(script={Op.END_SESSION: NEVER})
    text = said_of(await end_of(make_config, act, server))
    assert text == (
        "the server answers others over RPC and HTTP; it owes us answers: 1 END_SESSION"
    )


@pytest.mark.parametrize("web", [True, False])
@pytest.mark.asyncio
async def test_a_server_that_is_silent_is_named_by_its_sides(
    make_config: MakeConfig, web: bool
) -> None:
    server = Showing()

    async def act(stage: Stage) -> None:
        server.connectors[0]._script[Op.NOOP] = NEVER  # type: ignore[index]
        if not web:
            server.version = HttpFailedError("GET /version: no answer within 5 s")
        await hang(stage)

    result = await end_of(make_config, act, server)
    rpc = "the server is silent over RPC (NOOP: no answer within 5 s)"
    if web:
        rest = ", its HTTP API answers: its RPC thread is dead or stuck"
    else:
        rest = " and over HTTP (GET /version: no answer within 5 s)"
    assert said_of(result) == rpc + rest
    assert result.ledger.tallies[RUN].verdict is Verdict.UNKNOWN


@pytest.mark.asyncio
async def test_an_http_api_that_alone_is_silent_is_named(make_config: MakeConfig) -> None:
    server = Showing()

    async def act(stage: Stage) -> None:
        server.version = HttpFailedError("GET /version: refused")
        await hang(stage)

    text = said_of(await end_of(make_config, act, server))
    assert text.startswith(
        "the server answers over RPC; its HTTP API is silent (GET /version: refused); our own"
    )


@pytest.mark.asyncio
async def test_a_planned_rest_is_no_stall_and_what_is_answered_is_none(
    make_config: MakeConfig,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.rest_ns(100 * NS_PER_S)
        for _ in range(3):
            await stage.clock.sleep_ns(20 * NS_PER_S)
            await stage.met.connection.call(Op.NOOP)
        assert stage.book.monitor.snapshot().stalled_s < 30
        await stage.clock.sleep_ns(20 * NS_PER_S)
        assert 15 < stage.book.monitor.snapshot().stalled_s < 30
        await stage.conclude("act=0", GOOD)
        await stage.clock.sleep_ns(20 * NS_PER_S)

    server = Showing()
    result = await end_of(make_config, act, server)
    assert result.ledger.tallies[RUN].verdict is Verdict.VALID
    assert not server.shown


@pytest.mark.parametrize(
    ("asked", "timeout_s", "after_s"), [(None, 10.0, 300.0), (None, 400.0, 800.0), (7.0, 10.0, 7.0)]
)
def test_by_default_it_is_never_shorter_than_a_call_may_take(
    make_config: MakeConfig, asked: float | None, timeout_s: float, after_s: float
) -> None:
    config = make_config(stall_after_s=asked, timeout_s=timeout_s)
    assert config.stalled_after_s == after_s


def test_it_is_looked_often_enough_to_notice_in_time() -> None:
    assert [tick_s(after_s) for after_s in (1.0, 10.0, 300.0)] == [0.1, 1.0, 1.0]
