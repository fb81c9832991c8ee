"""Which side was the limit of a measurement: pure.

A figure says something of a server only as long as nothing on our side held it back.  Ours is the
limit if requests left later than they could have (lag), if the thread of the event loop, or all
CPUs that this process may use, were full, or if requests waited although there were means to send
them.  The server is the limit of an open loop if it gave the means back more slowly than the plan
needs them: then it was measured at another rate than the one asked for.  In a closed loop the
server sets the pace, so that alone is no fault there.

Either makes a measurement invalid.  Whether the answers were right is another question.

So many leases, each in the server's hands for the mean service time, come to a rate: no client, how
quick it may be, gets more out of that server with them.  If it is less than was asked for, the
server is the limit, late as we may have been; unless we were so full, or so late, that its times
are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchserver.stats.backlog import BacklogSample, trend_of
from benchserver.stats.latency import LatencySummary

NOBODY, HARNESS, SERVER = "", "harness", "server"

_LAG_MS = 10.0
_LAG_SHARE = 0.1
"""How late the latest 1 % of requests may be: the larger of the two, the share one of the median
service time."""

_FULL = 0.95
"""The share of a core, or of all, that counts as all of it."""

_GROWN_REQUESTS = 5
_GROWN_SHARE = 0.01
"""What a backlog must have come to: the larger of the two, the share one of the plan.  A hundredth
is what an achieved rate may differ from the one asked for."""

_STEADY = 0.5
"""How much more often than not a backlog must have risen, for it to be growing."""

_REMEDY = "lower --rate, or raise --concurrency or --clients if it can do more at once"

_FREE_SHARE = 0.1
"""Of the samples with somebody waiting: if leases were free in more, the waiting is not the
server's doing.  One that has just come back may be seen as free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """What an open loop had planned, and how it went.

    `planned` requests were due within `span_s`, `waiting` of them were not yet sent at the end of
    it.  `queued` is the wait for a lease.
    """

    planned: int
    span_s: float
    waiting: int
    achieved_per_s: float
    samples: Sequence[BacklogSample]
    queued: LatencySummary | None

    @property
    def asked_per_s(self) -> float:
        """Return the rate that the plan came to."""
        return self.planned / self.span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen of our own side, and of the plan, if there was one.

    `lag` is how much later than possible requests left.  `loop_cpu_s` is the CPU time of the event
    loop's thread within `wall_s`, `process_cpu_s` that of all threads.
    """

    lag: LatencySummary | None
    service: LatencySummary | None
    wall_s: float
    loop_cpu_s: float
    process_cpu_s: float
    usable_cpus: float
    plan: OpenLoop | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Whether figures may be taken as the server's; if not, whose limit was met, and why.

    `loop_cores` and `process_cpus` are what the event loop's thread and all threads used.
    """

    valid: bool
    limit: str
    reasons: tuple[str, ...]
    loop_cores: float | None = None
    process_cpus: float | None = None
    usable_cpus: float | None = None


def judge(evidence: Evidence) -> Measurement:
    """Return what the evidence says.

    Who was full, or late more often than not, comes first: that is in the server's times as well.
    """
    lag, service = evidence.lag, evidence.service
    if lag is None or service is None or evidence.wall_s <= 0:
        return Measurement(valid=False, limit=NOBODY, reasons=("nothing was measured",))
    allowed_ms = max(_LAG_MS, _LAG_SHARE * service.p50_ms)
    full = [*_full_loop(evidence), *_full_process(evidence)]
    late = _late(lag, allowed_ms)
    behind, whose = ([], NOBODY) if evidence.plan is None else _behind(evidence.plan, service)
    ours = full or lag.p50_ms > allowed_ms or (late and whose != SERVER)
    reasons = (*full, *late, *behind) if ours else (*behind, *late)
    return Measurement(
        valid=not reasons,
        limit=HARNESS if ours else whose,
        reasons=reasons,
        loop_cores=evidence.loop_cpu_s / evidence.wall_s,
        process_cpus=evidence.process_cpu_s / evidence.wall_s,
        usable_cpus=evidence.usable_cpus,
    )


def _late(lag: LatencySummary, allowed_ms: float) -> list[str]:
    if lag.p99_ms <= allowed_ms:
        return []
    return [
        f"bench-server was late: 1 % of {lag.count} requests left {lag.p99_ms:.1f} ms or more "
        f"after they could have ({allowed_ms:.1f} ms are allowed); give it more CPU, or less to do "
        "(--clients, --concurrency, --rate, --verify sample:P)"
    ]


def _full_loop(evidence: Evidence) -> list[str]:
    share = evidence.loop_cpu_s / evidence.wall_s
    if share < _FULL:
        return []
    return [
        f"bench-server's own core was full: its event loop took {share:.0%} of one "
        f"({_FULL:.0%} count as all of it); run several of them at once"
    ]


def _full_process(evidence: Evidence) -> list[str]:
    used = evidence.process_cpu_s / evidence.wall_s
    if used < _FULL * evidence.usable_cpus:
        return []
    return [
        f"bench-server had no CPU left: it used {used:.2f} of the {evidence.usable_cpus:g} that it "
        "may use; give it more, or --verify sample:P"
    ]


def _behind(plan: OpenLoop, service: LatencySummary) -> tuple[list[str], str]:
    """Return how far the plan was not kept, and whose doing that was."""
    if plan.span_s <= 0:
        return [], NOBODY
    least = max(_GROWN_REQUESTS, _GROWN_SHARE * plan.planned)
    trend = trend_of(plan.samples)
    grows = trend.per_s * plan.span_s >= least and trend.steadiness >= _STEADY
    if not grows and plan.waiting < least:
        return [], NOBODY
    rates = f"{plan.asked_per_s:.1f} requests/s were asked for, {plan.achieved_per_s:.1f} achieved"
    waiting = f"{plan.waiting} of {plan.planned} were still waiting at the end"
    growth = f", {trend.per_s:.1f} more each second" if grows else ""
    queued = "" if plan.queued is None else f", the p99 of all waits {plan.queued.p99_ms:.0f} ms"
    return _whose(plan, service, f"{rates}; {waiting}{growth}{queued}")


def _whose(plan: OpenLoop, service: LatencySummary, told: str) -> tuple[list[str], str]:
    """Return who kept requests waiting: by what its leases can do, and who had them meanwhile."""
    crowded = [sample for sample in plan.samples if sample.waiting]
    if not crowded:
        return [f"the plan was not kept, and nobody looked why: {told}"], NOBODY
    leases = crowded[-1].leases
    most_per_s = leases * 1000 / service.mean_ms if service.mean_ms else math.inf
    text = f"the server did less than it was asked for: {told}; {_REMEDY}"
    if most_per_s < plan.asked_per_s:
        return [
            f"{text} ({leases} leases at {service.mean_ms:.1f} ms each are {most_per_s:.1f} "
            "requests/s at most)"
        ], SERVER
    free = sum(sample.in_use < sample.leases for sample in crowded)
    if free > _FREE_SHARE * len(crowded):
        return [
            f"bench-server did not send what it could: {told}; in {free} of {len(crowded)} looks "
            "at those who waited, leases were not in the server's hands"
        ], HARNESS
    return [f"{text} (all {leases} leases were in its hands)"], SERVER
