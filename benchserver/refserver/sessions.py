"""Requests on their way from LOOKUP to END_SESSION, and lookup results that wait to be asked for.

A session remembers the chunk hashes of its request id and does not notice other tokens under the
same id, as in the real server: a reused id stores and retrieves under the old hashes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchserver.clock import NS_PER_S
from benchserver.refserver.defaults import DEFAULT_SESSION_TTL_S
from benchserver.refserver.store.hashing import ROOT, Chain, chain

SESSION_TTL_NS = round(DEFAULT_SESSION_TTL_S * NS_PER_S)
"""The default, counted from creation (0.5.6); results that nobody asks for live as long."""

MAX_SESSIONS = 1 << 16
MAX_RESULTS = 1 << 16
"""Far more than any bench has open; the oldest goes first."""

NO_RESULT = -1
"""Hits of a session whose lookup result nobody has asked for yet."""


class Scope(NamedTuple):
    """What names a request's objects beside the hashes of its chunks and the rank."""

    model_name: str
    world_size: int
    salt: str
    groups: int


@dataclass(slots=True, kw_only=True)
class Session:
    """One request id's state.

    `scope` and `hashes` are those of its transfers.  `groups` is how many object groups its LOOKUP
    locked of each chunk, 0 before: no registration need be left when the locks are given back.
    """

    created_ns: int
    hashes: list[bytes] = field(default_factory=list)
    hits: int = NO_RESULT
    groups: int = 0
    scope: Scope | None = None

    def chain_to(
        self, tokens: Sequence[int], end: int, chunk_size: int, *, chain: Chain = chain
    ) -> Sequence[bytes]:
        """Return the chunk hashes up to token `end`, hashing only what is not known yet."""
        known = len(self.hashes)
        last = self.hashes[-1] if self.hashes else ROOT
        start = known * chunk_size
        self.hashes.extend(chain(tokens[:end], chunk_size=chunk_size, start=start, root=last))
        return self.hashes[: end // chunk_size]


@dataclass(frozen=True, slots=True)
class _Result:
    hits: int
    created_ns: int


class Sessions:
    """All open sessions and unconsumed lookup results, oldest first."""

    def __init__(self, ttl_ns: int = SESSION_TTL_NS) -> None:
        self._ttl_ns = ttl_ns
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._results: OrderedDict[str, _Result] = OrderedDict()

    @property
    def count(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions)

    @property
    def result_count(self) -> int:
        """Return the number of results that nobody has asked for."""
        return len(self._results)

    def open(self, request_id: str, now_ns: int) -> Session:
        """Return the session of a request id, a new one if there is none."""
        session = self._sessions.get(request_id)
        if session is None:
            session = self._sessions[request_id] = Session(created_ns=now_ns)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def get(self, request_id: str) -> Session | None:
        """Return the open session of a request id, or None."""
        return self._sessions.get(request_id)

    def end(self, request_id: str) -> Session | None:
        """Close a session and return it, or None if there is none."""
        return self._sessions.pop(request_id, None)

    def put_result(self, request_id: str, hits: int, now_ns: int) -> None:
        """Keep a lookup's result until it is asked for; a second lookup replaces it."""
        self._results.pop(request_id, None)
        self._results[request_id] = _Result(hits, now_ns)
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def peek_result(self, request_id: str) -> int:
        """Return a lookup's result without consuming it; NO_RESULT if there is none."""
        result = self._results.get(request_id)
        return NO_RESULT if result is None else result.hits

    def take_result(self, request_id: str, now_ns: int) -> int:
        """Consume a lookup's result into its session; NO_RESULT if there is none."""
        result = self._results.pop(request_id, None)
        if result is None:
            return NO_RESULT
        self.open(request_id, now_ns).hits = result.hits
        return result.hits

    def expire(self, now_ns: int) -> None:
        """Drop sessions and results that are too old."""
        for held in (self._sessions, self._results):
            _drop_until(held, now_ns - self._ttl_ns)


def _drop_until(
    held: OrderedDict[str, Session] | OrderedDict[str, _Result], oldest_ns: int
) -> None:
    for name in [name for name, item in held.items() if item.created_ns <= oldest_ns]:
        del held[name]
