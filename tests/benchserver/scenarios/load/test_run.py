"""Loads from the first request to the last, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.check.dropped import DroppedAccount
from benchserver.check.verdict import Verdict
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.load.workloads.parse import parse_workload
from benchserver.scenarios.load.losses import Losses
from benchserver.scenarios.load.run import LoadRun
from benchserver.scenarios.load.scenario import bound, plan_of
from benchserver.scenarios.load.series import LAG, QUEUED, RESPONSE, SERVICE
from benchserver.stats.latency import LatencySummary
from benchserver.stats.measures import Series
from protocol.ops import Op
from tests.benchserver.scenarios.load.conftest import Loaded, MakeLoad


async def run_of(loaded: Loaded) -> LoadRun:
    workload = bound(loaded.config, loaded.stage)
    plan = plan_of(loaded.config, loaded.stage, workload)
    losses = Losses(loaded.stage, DroppedAccount(None))
    run = LoadRun(loaded.config, loaded.stage, plan, losses)
    await run.play()
    return run


def figures(loaded: Loaded, series: Series) -> LatencySummary:
    summary = loaded.stage.measures.latencies[series].summary()
    assert summary is not None
    return summary


@pytest.mark.asyncio
async def test_a_closed_loop_sends_as_fast_as_answers_come(make_load: MakeLoad) -> None:
    loaded = make_load(duration_s=0.5, requests=None, warmup_s=0.1, workload="shared-prefix:50")
    run = await run_of(loaded)
    totals = run.totals
    # Two leases, 4 or 5 ms a request: the first of each has no hit.
    assert 36 <= totals.warmup <= 44
    assert 190 <= totals.done <= 210
    assert (totals.failed, run.waiting, run.planned) == (0, 0, totals.done)
    assert totals.hit_chunks == 2 * totals.done
    assert totals.hits_verified == totals.hits_read == totals.done
    assert run.duration_s == pytest.approx(0.5, abs=0.01)
    assert figures(loaded, LAG).max_ms == 0
    assert figures(loaded, SERVICE).count == totals.done
    assert loaded.stage.book.counts[Verdict.VALID] == totals.done + totals.warmup
    assert totals.timeline.rows()[0].requests == pytest.approx(200, abs=10)


@pytest.mark.asyncio
async def test_it_says_how_much_memory_takes_what_it_keeps(make_load: MakeLoad) -> None:
    loaded = make_load(requests=50, workload="unique")
    run = await run_of(loaded)
    monitor, kept = loaded.stage.book.monitor, run.kept_bytes
    # Fifty requests of two chunks, in what is stored and in two ideal caches.
    assert kept >= 100 * (160 + 100)
    monitor.see({"our memory": 2.0 * kept}, 0)
    ours = next(one for one in monitor.snapshot().resources if one.name == "our memory")
    assert ours.value == 2.0 * kept
    assert monitor.snapshot().hits is not None


@pytest.mark.asyncio
async def test_an_open_loop_sends_when_requests_are_due(make_load: MakeLoad) -> None:
    loaded = make_load(rate="20", duration_s=2.0, requests=None)
    run = await run_of(loaded)
    assert (run.totals.done, run.planned, run.waiting) == (40, 40, 0)
    assert figures(loaded, RESPONSE).max_ms == figures(loaded, SERVICE).max_ms == 4.0
    assert figures(loaded, QUEUED).max_ms == 0
    assert run.is_open


@pytest.mark.asyncio
async def test_a_freeze_shows_in_the_responses_and_not_in_the_services(
    make_load: MakeLoad,
) -> None:
    loaded = make_load(rate="50", duration_s=10.0, requests=None)
    server = loaded.played.server
    honest = server.store

    def freeze(*args: object) -> object:
        frozen = 5 * NS_PER_S <= loaded.played.clock.now_ns() < 6 * NS_PER_S
        server.latency_ns = 900 * NS_PER_MS if frozen else NS_PER_MS
        return honest(*args)  # type: ignore[arg-type]

    server.answers[Op.STORE] = freeze
    run = await run_of(loaded)
    assert run.totals.done == 500
    assert figures(loaded, SERVICE).p50_ms == pytest.approx(4.0, abs=0.01)
    assert figures(loaded, RESPONSE).p99_ms > 500
    assert figures(loaded, QUEUED).p99_ms > 500
    assert figures(loaded, LAG).max_ms < 10


@pytest.mark.asyncio
async def test_more_than_the_server_can_do_is_the_servers_limit(make_load: MakeLoad) -> None:
    loaded = make_load(rate="1000", duration_s=0.4, requests=None)
    run = await run_of(loaded)
    # Two leases of 4 ms: 500 a second.
    assert 190 <= run.totals.done <= 210
    assert run.planned == 400
    assert run.waiting == pytest.approx(200, abs=10)


@pytest.mark.asyncio
async def test_a_number_of_requests_ends_a_run(make_load: MakeLoad) -> None:
    run = await run_of(make_load(requests=7))
    assert (run.totals.done, run.planned) == (7, 7)
    run = await run_of(make_load(requests=7, rate="10"))
    assert (run.totals.done, run.planned) == (7, 7)


@pytest.mark.asyncio
async def test_a_request_of_less_than_a_chunk_asks_nothing(make_load: MakeLoad) -> None:
    loaded = make_load({"num_tokens": 128}, workload="chat:turns=8,users=4,system=0", requests=16)
    assert parse_workload(loaded.config.workload)
    run = await run_of(loaded)
    totals = run.totals
    assert totals.too_short > 0
    assert totals.done + totals.too_short == 16


@pytest.mark.asyncio
async def test_progress_is_told(make_load: MakeLoad) -> None:
    loaded = make_load(rate="10", duration_s=11.0, requests=None)
    await run_of(loaded)
    told = [step for label, step in loaded.played.told.steps if label == "load"]
    assert [(step.at_s, step.done) for step in told] == [(5.0, 50), (10.0, 100)]  # type: ignore[attr-defined]


def trace(path: Path, *lines: tuple[int, int]) -> str:
    """Return the workload of a trace with requests at such milliseconds, of so many tokens."""
    path.write_text(
        "".join(
            f'{{"timestamp": {at_ms}, "input_length": {tokens}, "output_length": 1, '
            f'"hash_ids": [{number}]}}\n'
            for number, (at_ms, tokens) in enumerate(lines)
        )
    )
    return f"trace:{path}"


@pytest.mark.asyncio
async def test_a_trace_is_an_open_loop_at_its_own_instants(
    make_load: MakeLoad, tmp_path: Path
) -> None:
    text = trace(tmp_path / "trace.jsonl", (1000, 64), (1000, 128), (7000, 40))
    loaded = make_load(workload=text, requests=None)
    run = await run_of(loaded)
    assert run.is_open
    assert (run.totals.done, run.planned) == (3, 3)
    assert 6.0 <= run.duration_s < 6.1
    assert run.totals.asked_tokens == 64 + 128 + 40
    assert (await run_of(make_load(workload=text, requests=2))).totals.done == 2


@pytest.mark.asyncio
async def test_a_trace_can_be_sped_up_and_cut_or_asked_at_another_rate(
    make_load: MakeLoad, tmp_path: Path
) -> None:
    text = trace(tmp_path / "trace.jsonl", (0, 64), (6000, 128))
    fast = await run_of(make_load(workload=text, requests=None, speedup=10.0, max_input_tokens=64))
    assert 0.6 <= fast.duration_s < 0.7
    assert fast.totals.asked_tokens == 64 + 64
    paced = await run_of(make_load(workload=text, requests=None, rate="2"))
    assert 0.5 <= paced.duration_s < 0.6


@pytest.mark.asyncio
async def test_a_user_who_thinks_is_no_lag_of_ours(make_load: MakeLoad) -> None:
    loaded = make_load(workload="chat:users=1,think=1", rate="100", requests=6, concurrency=1)
    run = await run_of(loaded)
    assert run.totals.done == 6
    assert run.duration_s > 1
    assert figures(loaded, LAG).max_ms == 0
    assert figures(loaded, RESPONSE).max_ms < 10
