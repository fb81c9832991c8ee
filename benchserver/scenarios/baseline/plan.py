"""Which probes a run owes, which sequence carries each, and why one cannot be made: pure.

A probe is a question that not every sequence asks.  The first sequence of a run, whatever its
number, carries every probe that it can.  A probe that no sequence of the run can carry has a
reason, which the reports give: a probe that was owed and not made is never silent.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from benchserver.history import Probe
from benchserver.load.partial import SkipUnit, why_never
from benchserver.load.workload import PROBE_EVERY


class Pass(str, enum.Enum):
    """What a LOOKUP of a sequence is for; those after `warm` belong to probes.

    `salt` and `model` ask under another cache salt and model name, `bounds` for a shorter range.
    """

    COLD = "cold"
    WARM = "warm"
    PARTIAL = "partial"
    SALT = "salt"
    MODEL = "model"
    BOUNDS = "bounds"


EQUAL_CHUNKS = Probe("equal_chunks")
"""Two chunks of equal tokens behind different prefixes."""

REUSED_SOURCE = Probe("reused_source")
"""Source blocks are overwritten as soon as STORE is acknowledged."""

SKIPPED_TOKENS = Probe("partial")
"""RETRIEVE is told to skip the first tokens."""

OTHER_TENANTS = Probe("isolation")
"""LOOKUP under another cache salt, and under another model name."""

SHORTER_RANGE = Probe("bounds")
"""LOOKUP of a range that ends before the stored end."""

PROBES = (EQUAL_CHUNKS, REUSED_SOURCE, SKIPPED_TOKENS, OTHER_TENANTS, SHORTER_RANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What decides which probes the sequences of a run carry.

    `chunks` and `blocks` count those of one sequence; `end` None: for ever.
    """

    start: int
    end: int | None
    chunks: int
    blocks: int
    transport: str
    expect_warm: bool
    partial_every: int
    partial_skip: SkipUnit

    def why_never(self, probe: Probe) -> str:
        """Return why no sequence of the run can carry a probe, or "" if one does."""
        if probe == SKIPPED_TOKENS:
            return why_never(
                self.partial_every,
                transport=self.transport,
                blocks=self.blocks,
                chunks=self.chunks,
                unit=self.partial_skip,
            )
        if probe == REUSED_SOURCE:
            return self._why_never_reused()
        if probe == EQUAL_CHUNKS:
            return self._why_never_equal()
        if probe == SHORTER_RANGE and self.chunks < 2:
            return "a sequence is one chunk, so no range of whole chunks ends inside it"
        return ""

    def _why_never_reused(self) -> str:
        if self.transport != "handle":
            return "the client copies, so no server reads our blocks"
        return "--expect-warm stores nothing" if self.expect_warm else ""

    def _why_never_equal(self) -> str:
        if self.chunks < 2:
            return "a sequence is one chunk, so it cannot hold two equal ones"
        first = self.start + -self.start % PROBE_EVERY
        if self.expect_warm and self.end is not None and first >= self.end:
            return (
                "--expect-warm stores nothing, and of the sequences that an earlier run stored "
                f"only 0, {PROBE_EVERY}, {2 * PROBE_EVERY}, ... hold equal chunks"
            )
        return ""

    def owed(self, seq: int) -> frozenset[Probe]:
        """Return the probes that a sequence carries, beside what `needs_equal_chunks` adds."""
        carries = seq == self.start or seq % PROBE_EVERY == 0
        due = {
            EQUAL_CHUNKS: seq % PROBE_EVERY == 0,
            REUSED_SOURCE: (seq - self.start) % 2 == 0,
            SKIPPED_TOKENS: self.partial_every > 0
            and (seq == self.start or seq % self.partial_every == 0),
            OTHER_TENANTS: carries,
            SHORTER_RANGE: carries,
        }
        return frozenset(p for p, is_due in due.items() if is_due and not self.why_never(p))

    def needs_equal_chunks(self, seq: int) -> bool:
        """Tell whether a second request of equal chunks goes with a sequence.

        The tokens of a sequence depend on its number alone, so that a later run finds them again,
        whatever its --start.  So a first sequence whose own chunks differ gets a request beside it.
        """
        first = seq == self.start and seq % PROBE_EVERY != 0
        return first and not self.expect_warm and not self.why_never(EQUAL_CHUNKS)

    def gives_back(self, seq: int) -> bool:
        """Tell whether a reused source gets its content back, for the server's digests of it.

        That costs two passes over memory, so only the first sequence has both.
        """
        return seq == self.start

    @property
    def leaves_out_digests(self) -> bool:
        """Tell whether a later sequence has a reused source, so that nobody hashes its content."""
        longer = self.end is None or self.end - self.start > 2
        return longer and not self.why_never(REUSED_SOURCE)
