"""Whose limit a measurement has met: runs that are good, late, full, behind, and unseen."""

from __future__ import annotations

import heapq
import random
from bisect import bisect
from collections.abc import Iterable
from dataclasses import replace

import pytest

from benchserver.stats.backlog import BacklogSample
from benchserver.stats.latency import LatencySeries, LatencySummary
from benchserver.stats.limit import (
    HARNESS,
    NOBODY,
    SERVER,
    Evidence,
    Measurement,
    OpenLoop,
    judge,
)

MS = 1_000_000
SPAN_S = 30.0
RATE = 100
PLANNED = 3_000


def summary(*values_ms: float, count: int = 100) -> LatencySummary:
    series = LatencySeries()
    for value_ms in values_ms:
        for _ in range(count):
            series.add(int(value_ms * MS))
    made = series.summary()
    assert made is not None
    return made


CLOSED = Evidence(
    lag=summary(0.2),
    service=summary(20.0),
    wall_s=SPAN_S,
    loop_cpu_s=0.4 * SPAN_S,
    process_cpu_s=0.9 * SPAN_S,
    usable_cpus=2.0,
    plan=None,
)


def samples(waiting: Iterable[int], in_use: int = 16) -> list[BacklogSample]:
    return [
        BacklogSample(at_s=float(at_s), waiting=count, in_use=in_use, leases=16)
        for at_s, count in enumerate(waiting)
    ]


def open_loop(waiting: Iterable[int], *, in_use: int = 16, left: int = 0) -> Evidence:
    plan = OpenLoop(
        planned=PLANNED,
        span_s=SPAN_S,
        waiting=left,
        achieved_per_s=(PLANNED - left) / SPAN_S,
        samples=samples(waiting, in_use),
        queued=summary(0.0, 700.0),
    )
    return replace(CLOSED, plan=plan)


GOOD = Measurement(
    valid=True, limit=NOBODY, reasons=(), loop_cores=0.4, process_cpus=0.9, usable_cpus=2.0
)


def sides(evidence: Evidence) -> tuple[bool, str, int]:
    found = judge(evidence)
    return found.valid, found.limit, len(found.reasons)


def test_a_closed_loop_that_nothing_held_back_is_valid() -> None:
    assert judge(CLOSED) == GOOD


def test_an_open_loop_that_kept_its_plan_is_valid() -> None:
    assert judge(open_loop([0] * 30)) == GOOD
    assert judge(open_loop([n % 4 for n in range(30)], left=2)) == GOOD


def test_a_second_in_which_the_server_stood_still_is_no_limit() -> None:
    """A hundred requests waited, and were sent: the figures show it, and are valid."""
    assert judge(open_loop([*[0] * 14, 100, 40, *[0] * 14])) == GOOD


@pytest.mark.parametrize(
    ("lag_ms", "service_ms", "valid"),
    [(9.9, 20, True), (10.5, 20, False), (10.5, 150, True), (15.5, 150, False)],
)
def test_lag_may_be_ten_milliseconds_or_a_tenth_of_the_service(
    lag_ms: float, service_ms: float, valid: bool
) -> None:
    evidence = replace(CLOSED, lag=summary(0.1, lag_ms), service=summary(service_ms))
    assert sides(evidence) == ((True, NOBODY, 0) if valid else (False, HARNESS, 1))
    if not valid:
        (text,) = judge(evidence).reasons
        assert f"left {lag_ms} ms or more after they could have" in text


def test_one_late_request_of_many_is_no_limit() -> None:
    evidence = replace(CLOSED, lag=replace(CLOSED.lag or summary(1), max_ms=500.0, p999_ms=500.0))
    assert judge(evidence) == GOOD


@pytest.mark.parametrize(("share", "valid"), [(0.94, True), (0.95, False), (1.0, False)])
def test_a_full_core_of_our_own_is_our_limit(share: float, valid: bool) -> None:
    evidence = replace(CLOSED, loop_cpu_s=share * SPAN_S, process_cpu_s=share * SPAN_S)
    assert sides(evidence) == ((True, NOBODY, 0) if valid else (False, HARNESS, 1))
    if not valid:
        assert f"its event loop took {share:.0%} of one" in judge(evidence).reasons[0]


@pytest.mark.parametrize(("cpus", "valid"), [(2.0, True), (1.2, False), (0.5, False)])
def test_all_cpus_that_we_may_use_are_our_limit(cpus: float, valid: bool) -> None:
    evidence = replace(CLOSED, process_cpu_s=1.18 * SPAN_S, usable_cpus=cpus)
    assert sides(evidence) == ((True, NOBODY, 0) if valid else (False, HARNESS, 1))
    if not valid:
        assert f"used 1.18 of the {cpus:g} that it may use" in judge(evidence).reasons[0]


def test_a_growing_backlog_with_all_leases_in_use_is_the_server_s_limit() -> None:
    found = judge(open_loop(range(0, 1500, 50), left=1500))
    assert (found.valid, found.limit) == (False, SERVER)
    assert found.reasons == (
        "the server did less than it was asked for: 100.0 requests/s were asked for, 50.0 "
        "achieved; 1500 of 3000 were still waiting at the end, 50.0 more each second, the p99 of "
        "all waits 700 ms; lower --rate, or raise --concurrency or --clients if it can do more at "
        "once (all 16 leases were in its hands)",
    )


@pytest.mark.parametrize(
    ("service_ms", "in_use", "limit"),
    [(161.0, 16, SERVER), (161.0, 3, SERVER), (159.0, 16, SERVER), (159.0, 3, HARNESS)],
)
def test_what_leases_cannot_come_to_is_the_server_s_limit_however_late_we_were(
    service_ms: float, in_use: int, limit: str
) -> None:
    """16 leases at 161 ms each come to 99.4 requests/s; 100 are asked for."""
    behind = open_loop(range(0, 1500, 50), in_use=in_use, left=1500)
    found = judge(replace(behind, service=summary(service_ms), lag=summary(0.1, 50.0)))
    assert (found.limit, len(found.reasons)) == (limit, 2)
    assert ("are 99.4 requests/s at most" in found.reasons[0]) is (service_ms > 160)
    full = replace(behind, service=summary(service_ms), loop_cpu_s=SPAN_S)
    assert judge(full).limit == HARNESS
    late = replace(behind, service=summary(service_ms), lag=summary(50.0))
    assert judge(late).limit == HARNESS
    assert judge(late).reasons[0].startswith("bench-server was late")


def test_a_growing_backlog_beside_free_leases_is_ours() -> None:
    found = judge(open_loop(range(0, 1500, 50), in_use=15, left=1500))
    assert (found.valid, found.limit) == (False, HARNESS)
    assert "bench-server did not send what it could" in found.reasons[0]
    assert "in 29 of 29 looks at those who waited, leases were not in the" in found.reasons[0]


def test_a_lease_that_has_just_come_back_is_not_held_against_us() -> None:
    evidence = open_loop(range(0, 1500, 50), left=1500)
    assert evidence.plan is not None
    one_free = [
        replace(sample, in_use=15) if n in (7, 20) else sample
        for n, sample in enumerate(evidence.plan.samples)
    ]
    assert judge(replace(evidence, plan=replace(evidence.plan, samples=one_free))).limit == SERVER


def test_a_backlog_that_grows_by_less_than_a_hundredth_of_the_plan_is_none() -> None:
    assert judge(open_loop([n // 2 for n in range(30)], left=15)) == GOOD
    assert sides(open_loop([2 * n for n in range(30)], left=60)) == (False, SERVER, 1)


def test_requests_left_at_the_end_count_without_a_trend() -> None:
    """The last step of a ramp, or a server that stood still at the end."""
    found = judge(open_loop([*[0] * 28, 50, 100], left=100))
    assert (found.valid, found.limit) == (False, SERVER)
    assert "more each second" not in found.reasons[0]


def test_a_plan_that_was_not_kept_and_not_looked_at_is_nobody_s() -> None:
    found = judge(open_loop([0] * 30, left=100))
    assert (found.valid, found.limit) == (False, NOBODY)
    assert found.reasons[0].startswith("the plan was not kept, and nobody looked why: 100.0")


def test_ours_comes_first_for_it_may_cause_the_rest() -> None:
    evidence = replace(
        open_loop(range(0, 1500, 50), left=1500),
        lag=summary(50.0),
        loop_cpu_s=SPAN_S,
        process_cpu_s=2 * SPAN_S,
    )
    assert sides(evidence) == (False, HARNESS, 4)


def queue(rate: float, *, freeze_s: float = -1.0, seed: int = 3) -> Evidence:
    """Return what is seen of a server that takes about 20 ms and has 4 leases: 200 requests/s.

    Arrivals are Poisson's; from `freeze_s` on it stands still for a second.
    """
    chance, free = random.Random(seed), [0.0] * 4
    planned, sent, ended, at_s = list[float](), list[float](), list[float](), 0.0
    while (at_s := at_s + chance.expovariate(rate)) < SPAN_S:
        begin = max(at_s, heapq.heappop(free))
        end = begin + 0.02 * chance.uniform(0.8, 1.2)
        if begin < freeze_s + 1 and end > freeze_s >= 0:
            end = max(end, freeze_s + 1)
        heapq.heappush(free, end)
        planned.append(at_s)
        sent.append(begin)
        ended.append(end)
    ended.sort()
    looks = [
        BacklogSample(
            at_s=n / 4,
            waiting=bisect(planned, n / 4) - bisect(sent, n / 4),
            in_use=bisect(sent, n / 4) - bisect(ended, n / 4),
            leases=4,
        )
        for n in range(int(4 * SPAN_S))
    ]
    plan = OpenLoop(
        planned=len(planned),
        span_s=SPAN_S,
        waiting=len(sent) - bisect(sent, SPAN_S),
        achieved_per_s=bisect(ended, SPAN_S) / SPAN_S,
        samples=looks,
        queued=None,
    )
    return replace(CLOSED, plan=plan)


@pytest.mark.parametrize("rate", [20, 100, 160, 180])
def test_a_server_that_keeps_up_with_its_queue_is_no_limit(rate: float) -> None:
    assert judge(queue(rate)) == GOOD


@pytest.mark.parametrize("rate", [208, 250, 1000])
def test_a_server_that_does_not_is_the_limit(rate: float) -> None:
    assert sides(queue(rate)) == (False, SERVER, 1)


@pytest.mark.parametrize("freeze_s", [0.5, 10.0, 27.0])
def test_a_queue_that_drains_after_a_second_of_silence_is_no_limit(freeze_s: float) -> None:
    assert judge(queue(100, freeze_s=freeze_s)) == GOOD


def test_a_silence_at_the_very_end_leaves_requests_unsent() -> None:
    assert sides(queue(100, freeze_s=29.0)) == (False, SERVER, 1)


def test_without_a_request_nothing_was_measured() -> None:
    nothing = Measurement(valid=False, limit=NOBODY, reasons=("nothing was measured",))
    assert judge(replace(CLOSED, lag=None)) == nothing
    assert judge(replace(CLOSED, service=None)) == nothing
    assert judge(replace(CLOSED, wall_s=0.0)) == nothing


def test_an_open_loop_that_ended_at_once_has_no_plan_to_keep() -> None:
    evidence = open_loop([])
    assert evidence.plan is not None
    assert judge(replace(evidence, plan=replace(evidence.plan, planned=0, span_s=0.0))) == GOOD
