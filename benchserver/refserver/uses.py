"""Who uses an instance's memory: it is unmapped when its client is gone and the last use has ended.

All of it belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UseCount:
    """Counts the uses of an instance's memory; `let_go` is called once, closed and unused.

    It is called on the event loop, so it returns at once.
    """

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._let_go = let_go
        self._count = 0
        self._closing = False
        self._ended = False

    @property
    def count(self) -> int:
        """Return how many uses there are."""
        return self._count

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the memory mapped."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Begin a use, which `end` must end."""
        self._count += 1

    def end(self) -> None:
        """End a use."""
        self._count -= 1
        self._end_if_unused()

    def close(self) -> None:
        """Let go, now or when the last use ends."""
        self._closing = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._closing and not self._count and not self._ended:
            self._ended = True
            self._let_go()
