"""What a workload is: an interface, and what it is told of the run before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from benchserver.load.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a workload is told once the server was met.

    `num_tokens`: of a request where the workload itself does not say how many.  `in_flight`: the
    most requests at once.  `chunk_bytes`: what a chunk takes on the server, for all ranks.
    `l1_bytes`: the server's L1, 0 if it does not say.
    """

    seed: int
    num_tokens: int
    in_flight: int
    chunk_tokens: int
    chunk_bytes: int
    l1_bytes: int


class Workload(Protocol):
    """Requests in their order, the same in every process for the same words and terms."""

    @property
    def max_tokens(self) -> int:
        """Return the tokens of the longest request."""
        ...

    @property
    def count(self) -> int | None:
        """Return how many requests there are; None: there is no end."""
        ...

    @property
    def is_timed(self) -> bool:
        """Tell whether each request says when it comes (`not_before_ns`)."""
        ...

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        ...

    def requests(self) -> Iterator[Request]:
        """Yield all requests from the first; keeps nothing that grows."""
        ...


class Asked(Protocol):
    """A workload as a user asked for it: words that were found to be right."""

    @property
    def longest_tokens(self) -> int:
        """Return the tokens of the longest request, or 0 if it follows what `Terms` say."""
        ...

    def bind(self, terms: Terms) -> Workload:
        """Return the workload of a run; UsageError where it cannot be on these terms."""
        ...
