"""The load as a scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from benchserver.check.content import CANARIES, CONTENT
from benchserver.check.digests import DIGESTS
from benchserver.check.dropped import DROPPED
from benchserver.check.promises import PROMISED
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Verdict
from benchserver.clock import NS_PER_S
from benchserver.errors import UsageError
from benchserver.scenarios.load.checks import CHECKS, HITS
from benchserver.scenarios.load.scenario import Load
from tests.benchserver.scenarios.honest import HonestHttp
from tests.benchserver.scenarios.load.conftest import Loaded, MakeLoad
from tests.benchserver.scenarios.load.made import config


def test_its_traits_say_what_it_needs() -> None:
    traits = Load(config(clients=4, concurrency=3)).traits
    assert (traits.name, traits.unit, traits.clients, traits.in_flight) == ("load", "request", 4, 6)
    assert traits.checks == CHECKS


def test_a_workload_that_cannot_be_is_refused_before_anything_is_allocated(
    make_load: MakeLoad,
) -> None:
    loaded = make_load(workload="churn:2")
    fits, (crew,) = Load(loaded.config).traits.fits, loaded.stage.crews
    assert fits is not None
    with pytest.raises(UsageError, match="the server does not say how large its L1 is"):
        fits(crew.engine, crew.geometry, 0)
    with pytest.raises(UsageError, match="holds no chunk of"):
        fits(crew.engine, crew.geometry, crew.geometry.chunk_bytes - 1)
    fits(crew.engine, crew.geometry, crew.geometry.chunk_bytes)


@pytest.mark.parametrize(
    ("verify", "reason"),
    [("off", "--verify off"), ("sample:0.5", "--verify sample:0.5: a share of all hits")],
)
@pytest.mark.asyncio
async def test_bytes_that_nobody_looks_at_are_left_out_by_name(
    make_load: MakeLoad, verify: str, reason: str
) -> None:
    loaded = make_load(verify=verify)
    omitted = Load(loaded.config).omissions(loaded.stage)
    unbound = "counted, without a bound (--max-dropped)"
    off = {DROPPED: unbound, DIGESTS: "--digests off"}
    assert omitted.checks == {**off, CONTENT: reason, CANARIES: reason}


@pytest.mark.parametrize(
    ("verify", "verdict"),
    [("all", Verdict.UNKNOWN), ("sample:0.5", Verdict.UNKNOWN), ("off", Verdict.VALID)],
)
@pytest.mark.asyncio
async def test_a_load_that_read_nothing_has_proven_no_byte(
    make_load: MakeLoad, verify: str, verdict: Verdict
) -> None:
    loaded = make_load(workload="unique", verify=verify)
    loaded.played.server.visible_after_ns = 3600 * NS_PER_S
    for check, reason in Load(loaded.config).omissions(loaded.stage).checks.items():
        loaded.stage.book.ledger.skip(check, reason)
    await loaded.play()
    assert loaded.stage.book.ledger.tallies[CONTENT].verdict is verdict


@pytest.mark.asyncio
async def test_all_is_looked_at_unless_it_never_came(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", max_dropped=0.0)
    assert Load(loaded.config).omissions(loaded.stage).checks == {DIGESTS: "--digests off"}
    loaded.stage.book.ledger.skip(DIGESTS, "--digests off")
    loaded.played.server.visible_after_ns = 3600 * NS_PER_S
    await loaded.play()
    tallies = loaded.stage.book.ledger.tallies
    unread = [c for c, t in tallies.items() if t.unproven]
    assert unread == [HITS, CONTENT, CANARIES], "who reads nothing proves nothing"
    assert tallies[PROMISED].skipped == "no LOOKUP hit anything, so nothing was retrieved"
    assert tallies[CONTENT].texts == [
        "nothing was retrieved, so no byte is proven: no LOOKUP hit anything"
    ]
    loaded = make_load(workload="shared-prefix:50", max_dropped=0.0)
    await loaded.play()
    tallies = loaded.stage.book.ledger.tallies
    assert not any(tally.skipped for check, tally in tallies.items() if check is not DIGESTS)
    # Two of the four hit, and all are asked for again at the end.
    assert (tallies[CONTENT].passed, tallies[STORE].passed) == (2 + 4, 4)


def cross_checked(loaded: Loaded, *, wrong: bool | None) -> Loaded:
    """Return a load whose server gives digests, right ones or not."""
    stage = loaded.stage
    http = cast(Any, HonestHttp(loaded.played.server, wrong=wrong))
    crews = tuple(replace(crew, cross_check=True) for crew in stage.crews)
    target, met = replace(stage.target, needs_http=True), replace(stage.met, http=http)
    loaded.stage = replace(stage, target=target, met=met, crews=crews)
    return loaded


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [(False, Verdict.VALID), (True, Verdict.INVALID), (None, Verdict.UNKNOWN)],
)
@pytest.mark.asyncio
async def test_the_servers_digests_of_every_hit_are_compared_with_ours(
    make_load: MakeLoad, wrong: bool | None, verdict: Verdict
) -> None:
    asked = make_load({"tp_size": 2}, workload="shared-prefix:50", digests="all", max_dropped=0.0)
    loaded = cross_checked(asked, wrong=wrong)
    assert not Load(loaded.config).omissions(loaded.stage).checks
    await loaded.play()
    tally = loaded.stage.book.ledger.tallies[DIGESTS]
    assert tally.verdict is verdict
    assert tally.passed + tally.failed + tally.unproven == 2 * (2 + 4), (
        "two ranks; two hit, four again"
    )


@pytest.mark.asyncio
async def test_digests_that_cannot_be_had_are_left_out_by_name(make_load: MakeLoad) -> None:
    loaded = make_load(digests="all", max_dropped=0.0)
    [crew] = loaded.stage.crews
    target = replace(loaded.stage.target, needs_http=True)
    stage = replace(loaded.stage, target=target, crews=(replace(crew, cross_check=False),))
    reason = "the server's digest API covers lmcache_driven workers alone"
    assert Load(loaded.config).omissions(stage).checks == {DIGESTS: reason}
    stage = replace(stage, target=replace(stage.target, needs_http=False))
    assert Load(loaded.config).omissions(stage).checks == {DIGESTS: "--no-http"}


@pytest.mark.asyncio
async def test_who_reads_nothing_has_compared_no_digest(make_load: MakeLoad) -> None:
    loaded = cross_checked(make_load(workload="unique", digests="all"), wrong=False)
    loaded.played.server.visible_after_ns = 3600 * NS_PER_S
    await loaded.play()
    assert loaded.stage.book.ledger.tallies[DIGESTS].texts == ["nothing was retrieved"]
