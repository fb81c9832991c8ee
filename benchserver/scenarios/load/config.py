"""What a load is asked: requests, their pace, their end, and how much of them is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from benchserver.clock import NS_PER_S
from benchserver.errors import UsageError, one_line
from benchserver.load.arrivals import Spacing, Step, parse_rate, steps_of
from benchserver.load.goal import Term, parse_goal
from benchserver.load.tokens import Draws
from benchserver.load.workloads.parse import parse_workload

if TYPE_CHECKING:
    from benchserver.config.engine import Engine
    from benchserver.load.workloads.workload import Asked

_SHOWN = 80

_MOST_SPARE_LEASES = 4
"""More requests than that are rarely filled or looked at together, and each costs memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """One load.  None: not asked for; without a `rate` the loop is closed, or a trace's own."""

    workload: str
    clients: int
    concurrency: int
    rate: str | None
    arrivals: Spacing
    step_duration_s: float
    speedup: float | None
    max_input_tokens: int | None
    duration_s: float | None
    requests: int | None
    warmup_s: float
    prefill_tokens_per_s: float | None
    verify: str
    digests: str
    visible_within_s: float
    max_dropped: float | None
    goal: str | None

    @property
    def units(self) -> int | None:
        """Return how many requests there will be, if that was asked for."""
        return self.requests

    @property
    def lasts_s(self) -> float | None:
        """Return the seconds after which no request leaves, if that was asked for."""
        return None if self.end_ns is None else self.end_ns / NS_PER_S

    @property
    def in_flight(self) -> int:
        """Return how many requests of one client are under way at once."""
        return self.concurrency

    @property
    def asked(self) -> Asked:
        """Return the workload as it was asked for; UsageError if there is no such one."""
        return _parsed(self.workload, self.speedup, self.max_input_tokens)

    def engine(self, asked: Engine) -> Engine:
        """Return the engine with requests as long as the workload's, if that says how long.

        UsageError if there is no such workload.
        """
        tokens = self.asked.longest_tokens
        return replace(asked, num_tokens=tokens, num_tokens_given=True) if tokens else asked

    @property
    def leases(self) -> int:
        """Return the leases of a client: for those under way, and for those in our own hands."""
        return self.concurrency + min(self.concurrency, _MOST_SPARE_LEASES)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of an open loop's plan; none: a closed loop.  UsageError as above."""
        if self.rate is None:
            return ()
        return steps_of(parse_rate(self.rate), int(self.step_duration_s * NS_PER_S))

    @property
    def warmup_ns(self) -> int:
        """Return how long the warm-up is."""
        return int(self.warmup_s * NS_PER_S)

    @property
    def end_ns(self) -> int | None:
        """Return when the last request may leave, from the start; None: no time says so."""
        steps = self.steps
        ramp_ns = steps[-1].end_ns if steps else None
        if self.duration_s is None:
            return ramp_ns
        asked_ns = self.warmup_ns + int(self.duration_s * NS_PER_S)
        return asked_ns if ramp_ns is None else min(asked_ns, ramp_ns)

    @property
    def verified_share(self) -> float:
        """Return the share of hits that are looked at; UsageError if that is not said."""
        return parse_verify(self.verify)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the goal of each request; none: no goal.  UsageError if it says nothing."""
        return () if self.goal is None else parse_goal(self.goal)

    def prefill_ns(self, tokens: int) -> int:
        """Return how long an engine computes so many tokens."""
        per_s = self.prefill_tokens_per_s
        return 0 if per_s is None else int(tokens / per_s * NS_PER_S)

    def check(self) -> None:
        """Raise UsageError for anything that cannot work."""
        if self.duration_s is not None and self.requests is not None:
            raise UsageError("--duration and --requests exclude each other: each says when to end")
        _ = self.asked, self.steps, self.verified_share, self.terms


@lru_cache(maxsize=1)
def _parsed(workload: str, speedup: float | None, max_input_tokens: int | None) -> Asked:
    """Parse a workload once a run: a trace is read to its end for it."""
    return parse_workload(workload, speedup=speedup, max_input_tokens=max_input_tokens)


def parse_verify(text: str) -> float:
    """Return the share of hits that `all`, `sample:P` or `off` looks at."""
    if text in ("all", "off"):
        return 1.0 if text == "all" else 0.0
    word, _, number = text.partition(":")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    if word != "sample" or not 0 < share <= 1:
        raise UsageError(
            f"--verify {one_line(text, _SHOWN) or 'is empty'}: expected all, off, or sample:P with "
            "a share P of more than 0 and at most 1"
        )
    return share


def verified(share: float, seed: int, number: int) -> bool:
    """Tell whether request `number` is among those whose hits are looked at."""
    return share >= 1 or (share > 0 and Draws.named(seed, "verify").share(number) < share)
