"""What the baseline is asked: which sequences, and what of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchserver.errors import UsageError
from benchserver.load.partial import SkipUnit
from benchserver.scenarios.baseline.options import MAX_SEQUENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineConfig:
    """Sequences `start` up to, not including, `end`, begun within `duration_s`; None: for ever.

    Sequences that `partial_every` divides are also retrieved in part; 0: none.  `partial_skip` says
    what that skips.  `concurrency` sequences are under way at once, each on a client of its own.
    """

    start: int
    end: int | None
    duration_s: float | None = None
    interval_s: float
    expect_warm: bool
    partial_every: int
    partial_skip: SkipUnit
    visible_within_s: float
    max_dropped: float
    concurrency: int

    in_flight: ClassVar[int] = 1
    """Of one client: one sequence after the other."""

    @property
    def lasts_s(self) -> float | None:
        """Return the seconds after which no sequence begins, if that was asked for."""
        return self.duration_s

    @property
    def clients(self) -> int:
        """Return how many clients have something to do."""
        return self.concurrency if self.units is None else max(1, min(self.concurrency, self.units))

    def turns_of(self, client: int) -> range:
        """Return the numbers of the sequences of one client: every so many in turn."""
        return self.turns[client :: self.clients]

    def turn_of(self, seq: int) -> int:
        """Return which turn of `kv.blocks` a sequence is on its client, counted from the start."""
        return self.start + (seq - self.start) // self.clients

    @property
    def turns(self) -> range:
        """Return the numbers of all sequences."""
        return range(self.start, MAX_SEQUENCES if self.end is None else self.end)

    @property
    def units(self) -> int | None:
        """Return how many sequences there will be; None: until somebody stops them."""
        return None if self.end is None else self.end - self.start

    def check(self) -> None:
        """Raise UsageError if there is no sequence to run."""
        if self.end is not None and self.end <= self.start:
            raise UsageError(
                f"--end {self.end} must be greater than --start {self.start}: "
                "sequences run from --start up to, not including, --end"
            )
