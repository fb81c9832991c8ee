"""How long a registered instance stays: when it was last heard of, and who uses its memory.

An instance that is in use while it is unregistered (or reaped) is unmapped when that use ends.
All of it belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchserver.clock import NS_PER_S
from benchserver.refserver.defaults import (
    DEFAULT_WORKER_REAP_TIMEOUT_S,
    DEFAULT_WORKER_REGISTRATION_GRACE_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long clients may be silent before they are unregistered."""

    pinged_ns: int = round(DEFAULT_WORKER_REAP_TIMEOUT_S * NS_PER_S)
    """Of one that has PINGed; 0: nobody is ever given up."""
    silent_ns: int = round(DEFAULT_WORKER_REGISTRATION_GRACE_S * NS_PER_S)


@dataclass(slots=True, kw_only=True)
class Liveness:
    """When an instance was last heard of, and what that says."""

    last_seen_ns: int
    pinged: bool = False

    def is_stale(self, now_ns: int, patience: Patience) -> bool:
        """Tell whether the instance has been silent for too long."""
        limit_ns = patience.pinged_ns if self.pinged else patience.silent_ns
        return patience.pinged_ns > 0 and now_ns - self.last_seen_ns > limit_ns


class Tenancy:
    """Counts the uses of an instance's memory; `let_go` is called once, closed and unused.

    It is called on the event loop, so it returns at once.
    """

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._let_go = let_go
        self._users = 0
        self._closing = False
        self._ended = False

    @property
    def users(self) -> int:
        """Return how many uses there are."""
        return self._users

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
        self._users += 1

    def end(self) -> None:
        """End a use."""
        self._users -= 1
        self._end_if_unused()

    def close(self) -> None:
        """Let go, now or when the last use ends."""
        self._closing = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._closing and not self._users and not self._ended:
            self._ended = True
            self._let_go()
