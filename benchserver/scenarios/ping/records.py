"""What happened in a ping: one record a round trip, one a round."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.history import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TripRecord(CallRecord):
    """One request and its answer: the chunk size in tokens, or whether PING said True.

    With an outcome other than ok there is no answer.
    """

    answer: int = 0


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
