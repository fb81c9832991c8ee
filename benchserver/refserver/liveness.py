"""When an instance was last heard of, and how long it may be silent before it is unregistered."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.clock import NS_PER_S
from benchserver.refserver.defaults import (
    DEFAULT_WORKER_REAP_TIMEOUT_S,
    DEFAULT_WORKER_REGISTRATION_GRACE_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapTimeouts:
    """How long clients may be silent before they are unregistered."""

    pinged_ns: int = round(DEFAULT_WORKER_REAP_TIMEOUT_S * NS_PER_S)
    """Of a client that has PINGed; 0: none is ever given up."""
    silent_ns: int = round(DEFAULT_WORKER_REGISTRATION_GRACE_S * NS_PER_S)


@dataclass(slots=True, kw_only=True)
class Liveness:
    """When an instance was last heard of, and what that says."""

    last_seen_ns: int
    pinged: bool = False

    def is_stale(self, now_ns: int, timeouts: ReapTimeouts) -> bool:
        """Tell whether the instance has been silent for too long."""
        limit_ns = timeouts.pinged_ns if self.pinged else timeouts.silent_ns
        return timeouts.pinged_ns > 0 and now_ns - self.last_seen_ns > limit_ns
