"""How runs end: by themselves, by a signal at any moment, by silence of a server or a device."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import warnings
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.growth import GROWTH
from benchserver.check.health import HEALTH
from benchserver.check.replies import REPLIES
from benchserver.check.residue import RESIDUE
from benchserver.check.run import RUN
from benchserver.check.sessions import SESSIONS
from benchserver.check.transport import TRANSPORT
from benchserver.check.verdict import Verdict, passed
from benchserver.client import discovery
from benchserver.client.connection import ConnectionLostError, NoAnswerError
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.scripted import NEVER, Answer, in_turn
from benchserver.client.zmq import ZmqConnection
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.config.engine import Engine
from benchserver.errors import (
    FatalError,
    ServerGoneError,
    ServerSilentError,
    WorkCancelledError,
)
from benchserver.geometry import Geometry
from benchserver.kv.pool import KvPool
from benchserver.options.engine import TransferChoice
from benchserver.section import Section
from benchserver.stage import leaving as leaving_module
from benchserver.stage import run as run_module
from benchserver.stage.heartbeat import Heartbeat
from benchserver.stage.outside import Outside
from benchserver.stage.pools import HostPools
from benchserver.stage.run import Run
from benchserver.stage.stage import Stage
from benchserver.stage.traits import Omissions
from benchserver.stage.workforce import Workforce
from protocol.health import Health
from protocol.httpapi import ServerStatus
from protocol.messages import VOID, Reply
from protocol.ops import Op
from tests.benchserver.stage.runs import Machine, MakeConfig, RunMaker
from tests.benchserver.stage.scripted import (
    ASIDE,
    ASKED,
    CHUNK_TOKENS,
    GOOD,
    NO_HTTP,
    SPEC,
    WELL,
    WORKS,
    Play,
    ScriptedHttp,
    Server,
    played,
    run_of,
    two_acts,
)

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.asyncio
async def test_a_server_that_is_stopped_when_a_worker_registers_is_not_blamed(
    play: RunMaker, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """It was told that it does not serve this mode, or cannot map our memory."""
    call = ZmqConnection.call

    async def stop_at_register(self: ZmqConnection, op: Op, *args: Any, **options: Any) -> Reply:
        if op in (Op.REGISTER_KV_CACHE, Op.UNREGISTER_KV_CACHE, Op.NOOP):
            kind = ConnectionLostError if lost else NoAnswerError
            raise kind(op, "the connection was lost" if lost else "no answer within 1 s")
        return await call(self, op, *args, **options)

    async def silent(self: HttpApi) -> str:
        raise HttpFailedError("GET /version: no answer within 1 s")

    monkeypatch.setattr(ZmqConnection, "call", stop_at_register)
    monkeypatch.setattr(discovery, "read_version", known_version)
    monkeypatch.setattr(HttpApi, "version", silent)
    playing = play(651, None, transfer=TransferChoice.LMCACHE_DRIVEN)
    result = await playing.one.execute()
    (text,) = result.ledger.tallies[RUN].texts
    reason = "the connection was lost" if lost else "no answer within 1 s"
    said = "the server is gone" if lost else "the server no longer answers"
    assert text.startswith(f"{said}: rank 0: REGISTER_KV_CACHE: {reason}")
    assert result.ledger.tallies[RUN].verdict is (Verdict.INVALID if lost else Verdict.UNKNOWN)


async def known_version(*_: Any, **__: Any) -> str:
    return "0.5.6-embedded"


@pytest.mark.asyncio
async def test_a_stop_during_the_first_ping_leaves_nothing_undone(
    play: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequences, which had not begun, were a coroutine that nobody awaited: a warning."""
    pinging = threading.Event()

    async def hang(self: Heartbeat) -> None:
        pinging.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Heartbeat, "beat", hang)
    with warnings.catch_warnings(record=True) as caught:
        result = await play(1501, None).stopped(pinging.is_set)
        gc.collect()
    assert not [str(warning.message) for warning in caught]
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_leaving_at_once_releases_every_pool(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    leave = Run._leave

    async def release_first(self: Run) -> None:
        runs.append(self)
        self.release_segments()
        await leave(self)

    monkeypatch.setattr(Run, "_leave", release_first)
    await play(1001, machine, tp_size=2).one.execute()
    assert runs
    assert [pool.released for pool in machine.pools] == [True, True]


class Deaf(HostPools):
    """Pools that are being made until the run is cancelled, which their thread hears first."""

    begun: threading.Event

    def make(self, rank: int) -> KvPool:
        self.begun.set()
        assert self._cancel.wait(30)
        raise WorkCancelledError


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
@pytest.mark.asyncio
async def test_work_that_hears_of_the_end_before_the_loop_does_is_no_error(
    play: RunMaker, mode: str
) -> None:
    begun = threading.Event()

    def pools(
        engine: Engine, geometry: Geometry, nonce: bytes, cancel: threading.Event, workers: int
    ) -> HostPools:
        made = Deaf(engine, geometry, nonce, cancel, workers)
        made.begun = begun
        return made

    playing = play(1101, None, Outside(pools=pools), mode=mode)
    result = await playing.stopped(begun.is_set)
    assert result.interrupted
    assert (result.exit_code, result.verdict) == (1, Verdict.UNKNOWN)


@pytest.mark.asyncio
async def test_a_pool_that_comes_too_late_is_closed(play: RunMaker, machine: Machine) -> None:
    machine.making = threading.Event()
    playing = play(1201, machine)
    result = await playing.stopped(lambda: bool(machine.pools))
    assert result.interrupted
    (pool,) = machine.pools
    assert not pool.closed
    assert not playing.one.threads.idle_within(0.01)
    machine.making.set()
    assert playing.one.threads.idle_within(30)
    assert pool.closed


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_a_device_that_does_not_answer_does_not_hold_up_the_end(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_CLOSE_S", 0.1)
    machine.closing = threading.Event()
    playing = play(1301, machine, end=1)
    result = await asyncio.wait_for(playing.one.execute(), 20)
    assert result.verdict is Verdict.VALID
    assert [pool.closed for pool in machine.pools] == [False]
    machine.closing.set()
    assert playing.one.threads.idle_within(30)
    assert machine.pools[0].closed


@pytest.mark.usefixtures("events")
@pytest.mark.asyncio
async def test_a_stop_that_comes_while_all_is_cleaned_up_shortens_that(
    play: RunMaker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving_module, "_INTERRUPTED_CLEAN_UP_S", 0.1)
    cleaning = asyncio.Event()

    async def hang(self: Run) -> None:
        cleaning.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Run, "_clean_server", hang)
    playing = play(1401, machine, end=1)
    result = await asyncio.wait_for(playing.stopped(cleaning.is_set), 15)
    assert not result.interrupted
    assert result.ledger.tallies[RUN].verdict is Verdict.VALID
    (text,) = result.ledger.tallies[RESIDUE].texts
    assert text.endswith("cleaning up took too long")
    (text,) = result.ledger.tallies[REPLIES].texts
    assert text.startswith("at the end of the run: cleaning up took too long")


# Over a scripted server, in virtual time


@pytest.mark.asyncio
async def test_a_clean_up_that_is_cut_off_is_never_quiet(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without HTTP nobody else says so: a run passed whose workers may still be registered."""
    monkeypatch.setattr(leaving_module, "_INTERRUPTED_CLEAN_UP_S", 0.1)
    server, stop = Server(version=NO_HTTP, status=NO_HTTP), asyncio.Event()

    async def hang(*_: object, **__: object) -> list[str]:
        stop.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(Workforce, "unregister", hang)
    config = make_config(spec=SPEC, server_release="0.5.6", needs_http=False)
    one, _ = run_of(config, Play(two_acts), server, stop)
    result = await asyncio.wait_for(one.execute(), 15)
    assert (result.verdict, result.exit_code) == (Verdict.UNKNOWN, 1)
    assert result.ledger.tallies[REPLIES].texts == [
        "at the end of the run: cleaning up took too long, so what is still open on the server is "
        "unknown"
    ]


@pytest.mark.asyncio
async def test_a_stop_before_the_last_look_at_what_stays_leaves_that_unproven(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count before our workers are unregistered had passed, and the run passed with it."""
    monkeypatch.setattr(leaving_module, "_INTERRUPTED_CLEAN_UP_S", 0.1)
    server, stop = Server(status=replace(WELL, health=Health(said=0))), asyncio.Event()
    answer = ScriptedHttp.status

    async def hang_at_last(self: ScriptedHttp) -> ServerStatus:
        if Op.UNREGISTER_KV_CACHE in server.ops:
            stop.set()
            await asyncio.Event().wait()
        return await answer(self)

    monkeypatch.setattr(ScriptedHttp, "status", hang_at_last)
    one, _ = run_of(make_config(spec=SPEC), Play(two_acts), server, stop)
    result = await asyncio.wait_for(one.execute(), 15)
    assert not result.interrupted
    assert result.ledger.tallies[RESIDUE].passed == 1
    assert result.ledger.tallies[RESIDUE].texts == [
        "what stays on the server is unknown: cleaning up took too long"
    ]
    assert (result.verdict, result.exit_code) == (Verdict.UNKNOWN, 1)


@pytest.mark.asyncio
async def test_a_run_meets_registers_plays_and_leaves(make_config: MakeConfig) -> None:
    server = Server(configuration={"mp": {}})
    one, notes = run_of(make_config(spec=SPEC, tp_size=2), Play(two_acts), server)
    result = await one.execute()
    assert (result.account.configuration, result.account.unread) == ({"mp": {}}, "")
    assert len(result.nonce) == 10
    assert (result.verdict, result.exit_code) == (Verdict.VALID, 0)
    assert (result.sequences_ok, result.interrupted) == (2, False)
    first, second = server.connections
    assert first.ops == [
        *(Op.WAIT_PREFETCH_STATUS, Op.GET_CHUNK_SIZE, Op.REGISTER_KV_CACHE, Op.PING),
        *(Op.UNREGISTER_KV_CACHE, Op.NOOP),
    ]
    assert second.ops == [Op.REGISTER_KV_CACHE, Op.PING, Op.UNREGISTER_KV_CACHE, Op.NOOP]
    assert not server.registered
    assert server.http_closed == 1
    assert notes.notes[0].startswith("Connecting to LMCache MP Server at tcp://localhost:5555")
    assert notes.notes[-1] == "Transfer mode = lmcache_driven over handle, 2 workers"
    assert result.server.chunk_tokens == CHUNK_TOKENS


@pytest.mark.asyncio
async def test_a_scenario_without_workers_registers_nothing(make_config: MakeConfig) -> None:
    """Nor does its configuration have to fit the server's chunks."""
    server = Server()
    result = await played(
        make_config(spec=SPEC, num_tokens=CHUNK_TOKENS - 1), Play(two_acts, workers=False), server
    )
    assert result.verdict is Verdict.VALID
    assert server.ops == [Op.WAIT_PREFETCH_STATUS, Op.GET_CHUNK_SIZE]
    assert not {RESIDUE, TRANSPORT, SESSIONS} & set(result.ledger.tallies)
    assert result.ledger.tallies[HEALTH].passed == 2


@pytest.mark.parametrize("workers", [True, False])
@pytest.mark.asyncio
async def test_a_server_without_http_leaves_what_only_that_shows_unproven(
    make_config: MakeConfig, workers: bool
) -> None:
    server = Server(version=NO_HTTP, status=NO_HTTP)
    config = make_config(spec=SPEC, server_release="0.5.6")
    result = await played(config, Play(two_acts, workers=workers), server)
    assert result.verdict is Verdict.UNKNOWN
    bad = {check.name for check, t in result.ledger.tallies.items() if t.verdict.value}
    assert bad == ({"health", "residue"} if workers else {"health"})


@pytest.mark.parametrize(
    ("error", "verdict", "text"),
    [
        (FatalError("no way on"), Verdict.INVALID, "no way on"),
        (ServerSilentError("no word"), Verdict.UNKNOWN, "no word"),
        (ServerGoneError("it is gone"), Verdict.INVALID, "it is gone"),
        (OSError(errno.EMFILE, "Too many open files"), Verdict.INVALID, "ulimit -n"),
    ],
)
@pytest.mark.asyncio
async def test_an_error_of_the_scenario_ends_the_run_with_a_verdict(
    make_config: MakeConfig, error: Exception, verdict: Verdict, text: str
) -> None:
    async def act(stage: Stage) -> None:
        raise error

    server = Server()
    result = await played(make_config(spec=SPEC), Play(act), server)
    tally = result.ledger.tallies[RUN]
    assert tally.verdict is verdict
    assert text in tally.texts[0]
    gone = isinstance(error, ServerGoneError)
    assert bool(server.registered) is gone
    assert result.account.unread == ("the server was gone" if gone else "")
    if gone:
        assert result.ledger.tallies[RESIDUE].texts == [
            "what stays on the server is unknown: the server was gone"
        ]


@pytest.mark.asyncio
async def test_a_fault_of_our_own_is_raised_when_all_is_cleaned_up(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        raise ZeroDivisionError("ours")

    server = Server()
    with pytest.raises(ZeroDivisionError, match="ours"):
        await played(make_config(spec=SPEC), Play(act), server)
    assert not server.registered
    assert server.http_closed == 1


@pytest.mark.asyncio
async def test_a_run_that_concludes_nothing_proves_nothing(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        """Do nothing."""

    result = await played(make_config(spec=SPEC), Play(act), Server())
    assert result.verdict is Verdict.UNKNOWN
    assert result.ledger.tallies[RUN].texts == ["no act was finished: nothing is proven"]


@pytest.mark.asyncio
async def test_what_a_scenario_leaves_out_is_said_and_what_it_forgets_is_unproven(
    make_config: MakeConfig,
) -> None:
    async def act(stage: Stage) -> None:
        await stage.conclude("act=0", [passed(WORKS)])

    omitted = Omissions(checks={ASIDE: "--no-aside"}, probes={ASKED: "nobody to ask"})
    result = await played(make_config(spec=SPEC), Play(act, omitted=omitted), Server())
    assert result.verdict is Verdict.VALID
    left_out = {"aside": "--no-aside", "asked": "nobody to ask"}
    assert result.ledger.not_evaluated().items() > left_out.items()
    result = await played(make_config(spec=SPEC), Play(act), Server())
    assert result.verdict is Verdict.UNKNOWN
    assert result.ledger.tallies[ASIDE].verdict is Verdict.UNKNOWN


@pytest.mark.asyncio
async def test_growth_is_owed_by_a_soak_alone_and_by_none_that_ended_by_an_error(
    make_config: MakeConfig,
) -> None:
    async def fails(stage: Stage) -> None:
        await two_acts(stage)
        raise FatalError("the play cannot go on")

    result = await played(make_config(spec=SPEC), Play(two_acts, owes_growth=True), Server())
    assert result.ledger.tallies[GROWTH].texts == ["it takes 150 s or more to tell"]
    assert result.verdict is Verdict.UNKNOWN
    for play in (Play(two_acts), Play(fails, owes_growth=True)):
        result = await played(make_config(spec=SPEC), play, Server())
        assert "growth" in result.ledger.not_evaluated()


@pytest.mark.asyncio
async def test_a_stop_ends_the_play_but_not_what_must_be_finished(make_config: MakeConfig) -> None:
    server, stop, finished = Server(), asyncio.Event(), []

    async def to_its_end(stage: Stage) -> None:
        await stage.clock.sleep_ns(NS_PER_MS)
        finished.append(True)

    async def act(stage: Stage) -> None:
        stage.book.add_section(
            lambda: Section(key="acts", title="", lines=(), document={"finished": len(finished)})
        )
        await stage.conclude("act=0", GOOD, probes=[ASKED])
        stop.set()
        await stage.finishing.run(to_its_end(stage))
        raise AssertionError("the play went on")

    one, _ = run_of(make_config(spec=SPEC), Play(act), server, stop)
    result = await one.execute()
    assert result.interrupted
    assert finished == [True]
    assert [section.key for section in result.sections] == ["growth", "acts"]
    assert result.sections[1].document == {"finished": 1}
    assert (result.sequences_ok, result.verdict) == (1, Verdict.VALID)
    assert not server.registered


@pytest.mark.asyncio
async def test_a_request_that_a_scenario_leaves_open_is_settled(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        crew = stage.crews[0]
        request = crew.desk.open(list(range(64)), end=64, request_id="r")
        await crew.desk.lookup(request)
        await stage.conclude("act=0", GOOD)

    script = {Op.LOOKUP: VOID, Op.QUERY_PREFETCH_STATUS: 1}
    server = Server(script=script)
    result = await played(make_config(spec=SPEC, num_tokens=64), Play(act), server)
    assert Op.FREE_LOOKUP_LOCKS in server.ops
    assert Op.END_SESSION in server.ops
    assert result.ledger.tallies[SESSIONS].passed == 1
    server = Server(script={**script, Op.END_SESSION: NEVER})
    result = await played(make_config(spec=SPEC, num_tokens=64), Play(act), server)
    (text,) = result.ledger.tallies[SESSIONS].texts
    assert text == "at the end of the run: END_SESSION: no answer within 2 s"
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.asyncio
async def test_a_reply_that_nobody_waits_for_fails_the_run(make_config: MakeConfig) -> None:
    script = {Op.UNREGISTER_KV_CACHE: VOID, Op.PING: Answer(result=True, times=2)}
    result = await played(make_config(spec=SPEC), Play(two_acts), Server(script=script))
    tally = result.ledger.tallies[REPLIES]
    assert tally.verdict is Verdict.INVALID
    assert tally.texts[0].startswith("rank=0: duplicate reply to PING")


@pytest.mark.asyncio
async def test_workers_ping_while_a_scenario_sleeps(make_config: MakeConfig) -> None:
    async def act(stage: Stage) -> None:
        await stage.clock.sleep_ns(35 * NS_PER_S)
        await stage.conclude("act=0", GOOD)

    server = Server(script={Op.PING: in_turn(True, True, False, True)})
    result = await played(make_config(spec=SPEC), Play(act), server)
    assert server.ops.count(Op.PING) == 4
    (text,) = result.ledger.tallies[REPLIES].texts
    assert "rank=0: PING answered False" in text


@pytest.mark.asyncio
async def test_requests_of_all_clients_are_settled_at_the_end(make_config: MakeConfig) -> None:
    server = Server(script={Op.QUERY_PREFETCH_STATUS: 1, Op.END_SESSION: VOID})
    server.script |= {Op.LOOKUP: VOID, Op.FREE_LOOKUP_LOCKS: VOID}

    async def leave_open(stage: Stage) -> None:
        for crew in stage.crews:
            for name in (f"a-{crew.number}", f"b-{crew.number}"):
                await crew.desk.lookup(crew.desk.open([*range(64)], end=64, request_id=name))
        await two_acts(stage)

    result = await played(make_config(spec=SPEC), Play(leave_open, clients=3), server)
    assert result.ledger.tallies[SESSIONS].verdict is Verdict.VALID
    for connection in server.connections:
        assert connection.ops.count(Op.FREE_LOOKUP_LOCKS) == 2
        assert connection.ops.count(Op.END_SESSION) == 2
