"""What happened in a ping: one record a round trip, one a round."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.history import Outcome, Step
from protocol.ops import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class TripRecord(Step):
    """One request and its answer: `answer` is the chunk size, in tokens, or what PING said.

    Instants are those of the run's clock.  With an outcome other than ok there is no answer.
    """

    op: Op
    outcome: Outcome
    began_ns: int
    ended_ns: int
    answer: int = 0
    reason: str = ""

    @property
    def latency_ns(self) -> int:
        """Return how long the round trip took."""
        return self.ended_ns - self.began_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """The round trips of one round; `chunk_tokens` is what the first contact was told."""

    number: int
    chunk_tokens: int
    trips: tuple[TripRecord, ...]

    @property
    def label(self) -> str:
        """Return what lines call it."""
        return round_label(self.number)


def round_label(number: int) -> str:
    """Return what lines call a round."""
    return f"ping={number}"
