"""What the baseline is asked to do, out of what the run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.config import RunConfig
from benchserver.load.partial import SkipUnit
from benchserver.options.baseline import MAX_SEQUENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineConfig:
    """Its options; `end` None: for ever.

    Sequences that `partial_every` divides are also retrieved in part; 0: none.  `partial_skip` says
    what that skips.
    """

    seed: int
    start: int
    end: int | None
    interval_s: float
    expect_warm: bool
    visible_within_s: float
    partial_every: int
    partial_skip: SkipUnit

    @property
    def turns(self) -> range:
        """Return the numbers of all sequences."""
        return range(self.start, MAX_SEQUENCES if self.end is None else self.end)


def baseline_config(run: RunConfig) -> BaselineConfig:
    """Return the baseline's part of a run's configuration."""
    return BaselineConfig(
        seed=run.seed,
        start=run.start,
        end=run.end,
        interval_s=run.interval_s,
        expect_warm=run.expect_warm,
        visible_within_s=run.visible_within_s,
        partial_every=run.partial_every,
        partial_skip=run.partial_skip,
    )
