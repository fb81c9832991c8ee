"""What is made of a server's own account, over scripted answers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from benchserver.check.content import CONTENT
from benchserver.check.health import HEALTH
from benchserver.check.residue import RESIDUE
from benchserver.check.run import new_ledger
from benchserver.check.verdict import Finding, failed
from benchserver.client.http import HttpFailedError
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.config.run import RunConfig
from benchserver.errors import FatalError
from benchserver.geometry import Geometry
from benchserver.result import ServerAccount
from benchserver.scenarios.baseline.checks import CHECKS, VISIBILITY
from benchserver.stage.condition import Condition
from protocol.health import Health
from protocol.httpapi import ServerStatus
from shapespec import parse_shape_spec

MakeConfig = Callable[..., RunConfig]
WELL = ServerStatus(
    chunk_size=256,
    active_sessions=0,
    read_locked=0,
    write_locked=0,
    handle_instances=frozenset({7}),
    engine_instances=frozenset(),
    health=Health(said=2),
)
ILL = replace(WELL, health=Health(said=2, bad=("l1_eviction_controller (thread_alive false)",)))
MUTE = replace(WELL, health=Health())
GONE = replace(WELL, handle_instances=frozenset())
DOWN = HttpFailedError("GET /status: HTTP 500")
OURS = frozenset({7})
GEOMETRY = Geometry(
    spec=parse_shape_spec("(2,1024,16,8,128):float16:32"), chunk_tokens=256, num_tokens=512
)


class Scripted:
    """Answers /status with one thing after the other, the last one for ever; counts failures."""

    def __init__(self, *answers: ServerStatus | Exception) -> None:
        self.answers = list(answers)
        self.failed: dict[str, int] | Exception = {}
        self.config: dict[str, Any] | Exception = {"mp": {"port": 1}}
        self.asked = 0

    async def status(self) -> ServerStatus:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def configuration(self) -> dict[str, Any]:
        if isinstance(self.config, Exception):
            raise self.config
        return self.config

    async def failures(self) -> dict[str, int]:
        if isinstance(self.failed, Exception):
            raise self.failed
        return self.failed


class Stage:
    """A run's view of a server that answers as scripted."""

    def __init__(self, config: RunConfig, *answers: ServerStatus | Exception) -> None:
        self.http, self.clock, self.ledger = Scripted(*answers), VirtualClock(), new_ledger(CHECKS)
        self.condition = Condition(
            config.target, cast(Any, self.http), clock=self.clock, ledger=self.ledger
        )

    async def do(self, *steps: Coroutine[Any, Any, Any]) -> Any:
        return [await step for step in steps][-1]

    def health(self) -> tuple[int, int, int, str, list[str]]:
        tally = self.ledger.tallies[HEALTH]
        return tally.passed, tally.failed, tally.unproven, tally.skipped, tally.texts


@pytest.mark.asyncio
async def test_a_server_that_is_well_passes_before_and_after(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), WELL)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(OURS, registered=True),
        stage.condition.audit(frozenset(), registered=False),
    )
    stage.condition.explain_missing("too long")
    assert stage.health() == (2, 0, 0, "", [])
    assert stage.http.asked == 3
    assert stage.condition.audited


@pytest.mark.parametrize(("answers", "when"), [((ILL,), "before"), ((WELL, ILL), "after")])
@pytest.mark.asyncio
async def test_a_server_that_is_not_well_fails(
    make_config: MakeConfig, answers: tuple[ServerStatus, ...], when: str
) -> None:
    stage = Stage(make_config(), *answers)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(frozenset(), registered=False),
    )
    _, bad, _, _, texts = stage.health()
    assert bad == (2 if when == "before" else 1)
    assert texts[0].startswith(f"{when} the run, the server is not well")
    assert stage.clock.now_ns() <= 2 * NS_PER_S


@pytest.mark.asyncio
async def test_what_is_ill_for_a_moment_alone_is_well(make_config: MakeConfig) -> None:
    """0.5.6 compares numbers of its allocator that others change meanwhile."""
    stage = Stage(make_config(), ILL, ILL, WELL)
    await stage.do(stage.condition.look_before(256, GEOMETRY, kv_ranks=1))
    assert stage.health() == (1, 0, 0, "", [])


@pytest.mark.asyncio
async def test_a_server_that_says_nothing_of_it_is_not_evaluated(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), MUTE)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(frozenset(), registered=False),
    )
    stage.condition.explain_missing("too long")
    assert stage.health() == (0, 0, 0, "/status of this server says nothing about it", [])


@pytest.mark.asyncio
async def test_a_server_that_says_nothing_of_it_any_more_proves_nothing(
    make_config: MakeConfig,
) -> None:
    stage = Stage(make_config(), WELL, MUTE)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(frozenset(), registered=False),
    )
    assert stage.health()[:3] == (1, 0, 1)


@pytest.mark.asyncio
async def test_a_server_that_first_says_something_when_it_is_ill_fails(
    make_config: MakeConfig,
) -> None:
    stage = Stage(make_config(), MUTE, ILL)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(frozenset(), registered=False),
    )
    assert stage.health()[:3] == (0, 1, 0)


@pytest.mark.parametrize("cross_check", [True, False])
@pytest.mark.asyncio
async def test_no_answer_is_unproven_unless_http_was_not_asked_for(
    make_config: MakeConfig, cross_check: bool
) -> None:
    stage = Stage(make_config(needs_http=cross_check), DOWN)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.check_registered(OURS),
        stage.condition.audit(OURS, registered=False),
    )
    stage.condition.explain_missing("too long")
    assert stage.http.asked == 1
    for check in (HEALTH, RESIDUE):
        tally = stage.ledger.tallies[check]
        if cross_check:
            assert tally.texts == ["/status before the run: GET /status: HTTP 500"]
        else:
            assert (tally.skipped, tally.unproven) == (
                "--no-http, and /status does not answer",
                0,
            )


@pytest.mark.parametrize("answers", [(WELL,), (WELL, DOWN)])
@pytest.mark.asyncio
async def test_health_after_the_run_that_nobody_read_proves_nothing(
    make_config: MakeConfig, answers: tuple[ServerStatus | Exception, ...]
) -> None:
    stage = Stage(make_config(), *answers)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(OURS, registered=True),
    )
    assert not stage.condition.audited
    stage.condition.explain_missing("the server was gone")
    assert stage.health()[:3] == (1, 0, 1)
    assert stage.health()[4] == [
        "the server's health after the run is unknown: the server was gone"
    ]


@pytest.mark.asyncio
async def test_a_server_that_does_not_answer_after_the_run_is_why_its_health_is_unknown(
    make_config: MakeConfig,
) -> None:
    """It was said that cleaning up took too long."""
    stage = Stage(make_config(), WELL, DOWN)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.audit(OURS, registered=False),
    )
    stage.condition.explain_missing("cleaning up took too long")
    assert stage.health()[4] == [
        "the server's health after the run is unknown: its /status does not answer any more"
    ]


@pytest.mark.asyncio
async def test_another_server_is_refused(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), WELL)
    with pytest.raises(FatalError, match="two different servers"):
        await stage.do(stage.condition.look_before(16, GEOMETRY, kv_ranks=1))
    stage = Stage(make_config(), WELL, GONE)
    await stage.do(stage.condition.look_before(256, GEOMETRY, kv_ranks=1))
    with pytest.raises(FatalError, match="does not list the workers that registered"):
        await stage.do(stage.condition.check_registered(OURS))
    stage = Stage(make_config(), WELL)
    await stage.do(
        stage.condition.look_before(256, GEOMETRY, kv_ranks=1),
        stage.condition.check_registered(OURS),
    )


DROPPED = [failed(VISIBILITY, "not visible")]


async def explained(stage: Stage, findings: list[Finding]) -> list[Finding]:
    await stage.do(stage.condition.look_before(256, GEOMETRY, kv_ranks=1))
    stage.http.failed = {"lmcache_mp_l1_allocation_failure": 9}
    return cast(list[Finding], await stage.do(stage.condition.explain(findings, OURS)))


@pytest.mark.asyncio
async def test_a_failed_sequence_says_what_the_server_says(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), WELL, GONE)
    stage.http.failed = {"lmcache_mp_l1_allocation_failure": 7}
    (finding,) = await explained(stage, DROPPED)
    assert finding.text == (
        "not visible; the server's /status says: our registration of instance 7 is gone: the "
        "server gave it up, or was restarted; 2 allocations of chunks in L1 failed since the "
        "run began (/metrics)"
    )


@pytest.mark.asyncio
async def test_failures_that_it_does_not_explain_ask_for_nothing(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), WELL)
    content = [failed(CONTENT, "wrong bytes")]
    assert await explained(stage, content) == content
    assert stage.http.asked == 1


@pytest.mark.asyncio
async def test_what_cannot_be_asked_explains_nothing(make_config: MakeConfig) -> None:
    assert await explained(Stage(make_config(), WELL, DOWN), DROPPED) == DROPPED
    stage = Stage(make_config(), WELL)
    stage.http.failed = DOWN
    await stage.do(stage.condition.look_before(256, GEOMETRY, kv_ranks=1))
    assert await stage.do(stage.condition.explain(DROPPED, OURS)) == DROPPED


# The server's account, for the record of a run


@pytest.mark.asyncio
async def test_an_account_has_the_configuration_and_what_lay_in_l1(make_config: MakeConfig) -> None:
    before, after = replace(WELL, l1_bytes=1 << 30, l1_used=0), replace(WELL, l1_bytes=1, l1_used=9)
    stage = Stage(make_config(), before, after)
    await stage.do(
        stage.condition.look_before(256, None, kv_ranks=1),
        stage.condition.audit(frozenset(), registered=False),
        stage.condition.read_configuration(),
    )
    assert stage.condition.account("too long") == ServerAccount(
        configuration={"mp": {"port": 1}},
        unread="",
        l1_bytes=1 << 30,
        l1_used_before=0,
        l1_used_after=9,
    )


@pytest.mark.asyncio
async def test_an_account_says_why_it_has_no_configuration(make_config: MakeConfig) -> None:
    stage = Stage(make_config(), WELL)
    await stage.do(stage.condition.look_before(256, None, kv_ranks=1))
    assert stage.condition.account("too long") == ServerAccount(unread="too long")
    stage.http.config = HttpFailedError("GET /config: HTTP 500")
    await stage.do(stage.condition.read_configuration())
    assert stage.condition.account("too long") == ServerAccount(unread="GET /config: HTTP 500")


@pytest.mark.asyncio
async def test_a_server_without_http_is_not_asked_for_its_configuration(
    make_config: MakeConfig,
) -> None:
    stage = Stage(make_config(), DOWN)
    stage.http.config = AssertionError("asked")
    await stage.do(
        stage.condition.look_before(256, None, kv_ranks=1), stage.condition.read_configuration()
    )
    unread = "/status did not answer before the run"
    assert stage.condition.account("") == ServerAccount(unread=unread)
