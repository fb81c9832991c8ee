"""The look back at the end of a load: what was stored is there, or the run fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.check.content import CONTENT
from benchserver.check.verdict import Ledger, Verdict
from benchserver.clock import NS_PER_S
from benchserver.scenarios.load.checks import HITS, LOOK_BACK
from benchserver.stage.condition import Condition
from protocol.counters import Counters
from protocol.messages import TransferResult
from protocol.ops import Op
from tests.benchserver.scenarios.load.conftest import Loaded, MakeLoad


def ledger_of(loaded: Loaded) -> Ledger:
    return loaded.stage.book.ledger


def losing(loaded: Loaded, lost: Callable[[int], bool]) -> None:
    """Let the server answer True to STOREs that it throws away, by their number."""
    server, honest, count = loaded.played.server, loaded.played.server.store, [0]

    def store(*args: Any) -> Any:
        before = dict(server.stored)
        result = honest(*args)
        if lost(count[0]):
            server.stored.clear()
            server.stored.update(before)
        count[0] += 1
        return result

    server.answers[Op.STORE] = store


def telling(monkeypatch: pytest.MonkeyPatch, told: Counters) -> None:
    """Let the server count nothing until the run has begun, and then this."""
    answers = [Counters()]

    async def counters(_self: Condition, _model: str) -> Counters:
        return answers.pop() if answers else told

    monkeypatch.setattr(Condition, "counters", counters)


@pytest.mark.asyncio
async def test_what_no_request_shares_is_read_at_the_end(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", requests=6)
    await loaded.play()
    ledger = ledger_of(loaded)
    assert ledger.probes[LOOK_BACK].made == 6
    assert ledger.tallies[CONTENT].passed == 6
    assert ledger.tallies[HITS].verdict is Verdict.VALID
    assert loaded.stage.book.concluded == 6, "those that are asked again are no requests of the run"
    assert loaded.stage.crews[0].desk.open_requests == {}


@pytest.mark.asyncio
async def test_only_some_of_many_requests_are_kept(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", requests=100)
    await loaded.play()
    assert ledger_of(loaded).probes[LOOK_BACK].made == 32


@pytest.mark.parametrize("workload", ["unique", "shared-prefix:50"])
@pytest.mark.parametrize("share", [1, 2, 4])
@pytest.mark.asyncio
async def test_stores_that_are_lost_in_silence_are_found(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch, workload: str, share: int
) -> None:
    """All, half or a quarter of them; a request that asks soon again would store them anew."""
    telling(monkeypatch, Counters())
    loaded = make_load(workload=workload, requests=30)
    losing(loaded, lambda number: number % share == 0)
    await loaded.play()
    tally = ledger_of(loaded).tallies[HITS]
    assert tally.verdict is Verdict.INVALID
    assert any("asked again" in text for text in tally.texts)


@pytest.mark.asyncio
async def test_what_the_server_counts_as_lost_is_no_failure(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling(monkeypatch, Counters(dropped_chunks=100))
    loaded = make_load(workload="unique", requests=8)
    losing(loaded, lambda number: number % 2 == 0)
    await loaded.play()
    assert ledger_of(loaded).tallies[HITS].verdict is Verdict.VALID
    assert ledger_of(loaded).probes[LOOK_BACK].made == 8


@pytest.mark.asyncio
async def test_what_is_merely_late_is_waited_for(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling(monkeypatch, Counters())
    loaded = make_load(workload="unique", requests=4, visible_within_s=2.0)
    loaded.played.server.visible_after_ns = NS_PER_S
    await loaded.play()
    ledger = ledger_of(loaded)
    assert ledger.tallies[HITS].verdict is Verdict.VALID
    assert ledger.tallies[CONTENT].passed == 4


@pytest.mark.asyncio
async def test_what_another_request_stored_last_is_waited_for_as_well(
    make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is asked again; the last one has stored what they have in common anew."""
    telling(monkeypatch, Counters())
    monkeypatch.setattr("benchserver.scenarios.load.lookback._MOST_REQUESTS", 1)
    monkeypatch.setattr("benchserver.scenarios.load.lookback._LEAST_REQUESTS", 1)
    monkeypatch.setattr(random.Random, "randrange", lambda _self, stop: stop - 1)
    loaded = make_load(
        workload="shared-prefix:75", requests=10, visible_within_s=0.5, prefill_tokens_per_s=1000
    )
    losing(loaded, lambda _: True)
    await loaded.play()
    assert [text for text in ledger_of(loaded).tallies[HITS].texts if "asked again" in text]


@pytest.mark.asyncio
async def test_a_wrong_byte_that_no_request_would_have_read_is_found(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", requests=4, verify="sample:0.01")
    server = loaded.played.server
    honest = server.store

    def store(*args: Any) -> Any:
        result = honest(*args)
        for _, data in server.stored.values():
            data[:] = 0
        return result

    server.answers[Op.STORE] = store
    await loaded.play()
    assert ledger_of(loaded).tallies[CONTENT].verdict is Verdict.INVALID


@pytest.mark.asyncio
async def test_a_run_that_has_stored_nothing_says_so(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", requests=3)
    loaded.played.server.answers[Op.STORE] = lambda *_: TransferResult(event=b"", ok=False)
    await loaded.play()
    assert ledger_of(loaded).not_evaluated()["look_back"] == "this run has stored nothing"


@pytest.mark.asyncio
async def test_who_verifies_nothing_does_not_look_back(make_load: MakeLoad) -> None:
    loaded = make_load(workload="unique", requests=3, verify="off")
    await loaded.play()
    assert ledger_of(loaded).probes[LOOK_BACK].made == 0
