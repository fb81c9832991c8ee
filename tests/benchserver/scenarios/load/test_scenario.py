"""The load as a scenario."""

from __future__ import annotations

import pytest

from benchserver.check.content import CANARIES, CONTENT
from benchserver.check.dropped import DROPPED
from benchserver.check.promises import PROMISED
from benchserver.check.transfers import STORE
from benchserver.check.verdict import Verdict
from benchserver.clock import NS_PER_S
from benchserver.errors import UsageError
from benchserver.scenarios.load.checks import CHECKS, HITS
from benchserver.scenarios.load.scenario import Load
from tests.benchserver.scenarios.load.conftest import MakeLoad
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
    assert omitted.checks == {DROPPED: unbound, CONTENT: reason, CANARIES: reason}


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
    assert not Load(loaded.config).omissions(loaded.stage).checks
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
    assert not any(tally.skipped for tally in tallies.values())
    # Two of the four hit, and all are asked for again at the end.
    assert (tallies[CONTENT].passed, tallies[STORE].passed) == (2 + 4, 4)
