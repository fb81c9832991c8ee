"""How many a second, lately: a ring of counters, one a second, in bounded memory."""

from __future__ import annotations

from benchserver.clock import NS_PER_S

WINDOW_S = 60
"""What "lately" means: long enough to be steady, short enough to be of now."""


class Pace:
    """What was counted in each of the last seconds."""

    def __init__(self, began_ns: int) -> None:
        """Counting begins then."""
        self._began_ns = began_ns
        self._slots = [0] * (WINDOW_S + 1)
        self._last = 0
        """The second of the latest slot, counted from the begin."""

    def add(self, now_ns: int) -> None:
        """Count one."""
        self._slots[self._turn_to(now_ns)] += 1

    def per_s(self, now_ns: int) -> float:
        """Return how many a second came in the last minute, or since the begin if that is less."""
        self._turn_to(now_ns)
        at_s = (now_ns - self._began_ns) / NS_PER_S
        # The oldest slot is in part older than a minute: all of it counts, and so does its time.
        span_s = at_s - max(0, self._last - WINDOW_S)
        return sum(self._slots) / span_s if span_s > 0 else 0.0

    def _turn_to(self, now_ns: int) -> int:
        """Empty the slots of the seconds that have come since, and return that of now."""
        second = max(self._last, (now_ns - self._began_ns) // NS_PER_S)
        for gone in range(min(second - self._last, len(self._slots))):
            self._slots[(second - gone) % len(self._slots)] = 0
        self._last = second
        return second % len(self._slots)
