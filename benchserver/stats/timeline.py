"""What ended when, second by second, in bounded memory.

A timeline begins at an origin and divides what follows into slots of one second.  When there would
be too many, each two neighbours become one: a week's run takes no more memory than ten minutes, and
its rows are longer.  A slot's length is always one second times a power of two, so two timelines of
one origin have edges in common and merge into one, as if one had counted all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchserver.stats.latency import LatencySeries

MOST_SLOTS = 600
"""Ten minutes by the second.  A slot takes 16 KB, so all of them 10 MB."""

_SLOT_NS = 1_000_000_000
_DIGITS = 2
_SLOT_BYTES = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """What ended in one slot: `requests` in all, `errors` of them; the latencies of both.

    `at_s` is where it begins, counted from the origin, and `length_s` how long it is.  Without a
    request there are no latencies.
    """

    at_s: int
    length_s: int
    requests: int
    errors: int
    moved_bytes: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(slots=True)
class _Slot:
    errors: int = 0
    moved_bytes: int = 0
    latencies: LatencySeries = field(default_factory=lambda: LatencySeries(digits=_DIGITS))

    def merge(self, other: _Slot) -> None:
        self.errors += other.errors
        self.moved_bytes += other.moved_bytes
        self.latencies.merge(other.latencies)


class Timeline:
    """Requests, errors, bytes and latencies by when they ended."""

    def __init__(self, *, most_slots: int = MOST_SLOTS) -> None:
        self._most_slots = most_slots
        self._slot_ns = _SLOT_NS
        self._slots = dict[int, _Slot]()

    @property
    def nbytes(self) -> int:
        """Return about how much memory this takes."""
        return len(self._slots) * _SLOT_BYTES

    def add(self, at_ns: int, latency_ns: int, nbytes: int = 0) -> None:
        """Count a request that ended well, so long after the origin."""
        slot = self._slot_at(at_ns)
        slot.moved_bytes += nbytes
        slot.latencies.add(latency_ns)

    def add_error(self, at_ns: int, waited_ns: int) -> None:
        """Count one that did not, and how long it was waited for."""
        slot = self._slot_at(at_ns)
        slot.errors += 1
        slot.latencies.add_censored(waited_ns)

    def merge(self, other: Timeline) -> None:
        """Count all that another one of the same origin has counted."""
        while self._slot_ns < other._slot_ns:
            self._halve()
        for number, slot in other._slots.items():
            self._slot_at(number * other._slot_ns).merge(slot)

    def rows(self) -> tuple[TimelineRow, ...]:
        """Return a row for each slot from the origin to the last one, the empty ones as well."""
        last = max(self._slots, default=-1)
        return tuple(self._row(number) for number in range(last + 1))

    def _slot_at(self, at_ns: int) -> _Slot:
        if at_ns < 0:
            raise ValueError(f"{at_ns} ns lies before the origin of this timeline")
        while at_ns // self._slot_ns >= self._most_slots:
            self._halve()
        number = at_ns // self._slot_ns
        if number not in self._slots:
            self._slots[number] = _Slot()
        return self._slots[number]

    def _halve(self) -> None:
        """Make one of each two neighbours."""
        self._slot_ns *= 2
        slots, self._slots = self._slots, {}
        for number, slot in slots.items():
            if number // 2 in self._slots:
                self._slots[number // 2].merge(slot)
            else:
                self._slots[number // 2] = slot

    def _row(self, number: int) -> TimelineRow:
        slot = self._slots.get(number) or _Slot()
        summary = slot.latencies.summary()
        length_s = self._slot_ns // _SLOT_NS
        return TimelineRow(
            at_s=number * length_s,
            length_s=length_s,
            requests=0 if summary is None else summary.count,
            errors=slot.errors,
            moved_bytes=slot.moved_bytes,
            p50_ms=None if summary is None else summary.p50_ms,
            p99_ms=None if summary is None else summary.p99_ms,
            max_ms=None if summary is None else summary.max_ms,
        )
