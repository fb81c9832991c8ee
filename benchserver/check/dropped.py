"""Dropped: chunks whose STORE was answered True and that the server then gave up, by its own count.

A real server does so when stores outrun its eviction, which runs once a second (0.4.7 to 0.5.7rc2).
What its counters account for is dropped: not wrong, and not silent.  What they do not account for
is a failure of the checks that miss it.
"""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed
from benchserver.history import DroppedRecord, LookupRecord, SequenceRecord, TransferRecord
from protocol.counters import Counters

DROPPED = Check(
    "dropped",
    "the server drops no more than --max-dropped of the chunks whose STORE it has answered True",
)

REMEDY = (
    "STORE answered True, but its L1 had no room: it makes room in a loop, once a second; give it "
    "a larger --l1-size-gb, store more slowly (--interval), or allow a share with --max-dropped"
)
"""What a line says of cause and remedy."""


class DroppedAccount:
    """How many chunks were stored and then missed, and which of these the server has counted.

    Servers count objects, one a KV rank and object group: a missing chunk is at least one of them.
    """

    def __init__(self, before: Counters | None) -> None:
        """`before` is what the server had counted when the run began; None: it does not tell."""
        self._before = before
        self._used_dropped = 0
        self._used_evicted = 0
        """What of the counters of the server that runs now was used as an explanation."""
        self.stored = 0
        """Chunks whose STORE was answered True."""
        self.dropped = 0
        """How many of these were missing, and are accounted for."""
        self.evicted = 0
        """How many more were missing, and had made room for others."""

    def restarted(self, before: Counters | None) -> None:
        """Take the counters of a server that was restarted: they begin anew."""
        self._before = before
        self._used_dropped = self._used_evicted = 0

    @property
    def known(self) -> bool:
        """Tell whether the server counts at all."""
        return self._before is not None

    @property
    def share(self) -> float:
        """Return the dropped share of what was stored."""
        return self.dropped / self.stored if self.stored else 0.0

    def since(self, now: Counters | None) -> Counters | None:
        """Return what was counted since the run began; None: nobody knows."""
        return None if self._before is None or now is None else now.since(self._before)

    def explain(self, missing: int, now: Counters | None) -> int:
        """Return how many of so many missing chunks were dropped; each counted one is used once."""
        counted = self.since(now) or Counters()
        explained = min(missing, max(0, counted.dropped_chunks - self._used_dropped))
        self._used_dropped += explained
        self.dropped += explained
        return explained

    def explain_evicted(self, missing: int, now: Counters | None) -> int:
        """Return the same of those that were evicted: stored well, and given up later."""
        counted = self.since(now) or Counters()
        explained = min(missing, max(0, counted.evicted_chunks - self._used_evicted))
        self._used_evicted += explained
        self.evicted += explained
        return explained

    def finding(self, max_share: float) -> Finding:
        """Return the finding on the whole run."""
        if self.share <= max_share:
            return passed(DROPPED)
        return failed(
            DROPPED,
            f"the server dropped {self.dropped} of {self.stored} chunks, a share of "
            f"{self.share:.2g}, and --max-dropped is {max_share:g}: {REMEDY}",
        )


def dropped(record: SequenceRecord) -> list[Finding]:
    """What a sequence has stored was not dropped, or may be."""
    if record.expect_warm:
        return []
    lost = dropped_of(record)
    if lost is None:
        found = _found(record)
        text = f"{record.label}: what was stored was not looked for"
        return [passed(DROPPED) if found else not_looked_at(DROPPED, text)]
    if not lost.accounted:
        text = f"{record.label}: no counter of the server accounts for the missing chunks"
        return [not_looked_at(DROPPED, text)]
    if not lost.allowed:
        return [
            failed(
                DROPPED,
                f"{record.label}: the server dropped {lost.accounted} of {lost.total} chunks, by "
                f"its own counters (/metrics): {REMEDY}",
            )
        ]
    return [passed(DROPPED)]


def _found(record: SequenceRecord) -> bool:
    """Tell whether a LOOKUP behind the STOREs has found all of it."""
    stored, found = False, False
    for step in record.steps:
        if isinstance(step, TransferRecord) and step.name == "STORE":
            stored = True
        if stored and isinstance(step, LookupRecord) and step.total:
            found = found or step.hits >= step.total
    return found


def dropped_of(record: SequenceRecord) -> DroppedRecord | None:
    """Return what is known of the chunks that a sequence misses, or None if nobody looked."""
    return next((step for step in record.steps if isinstance(step, DroppedRecord)), None)


def all_dropped(record: SequenceRecord) -> bool:
    """Tell whether the counters account for every chunk that a sequence misses."""
    lost = dropped_of(record)
    return lost is not None and 0 < lost.missing == lost.accounted
