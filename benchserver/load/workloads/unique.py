"""`unique`: no request has a token run in common with another, so that nothing is ever hit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.load.request import Part, Request
from benchserver.load.workloads.words import read_words
from benchserver.load.workloads.workload import Terms


@dataclass(frozen=True, slots=True)
class AskedUnique:
    """`unique`."""

    longest_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> AskedUnique:
        """Return what was asked for; UsageError for other words."""
        read_words(text, form="unique alone", keys=())
        return cls()

    def bind(self, terms: Terms) -> Unique:
        """Return the workload of a run."""
        return Unique(max_tokens=terms.num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """Requests of `max_tokens` tokens each, all different."""

    max_tokens: int
    count: None = None
    is_timed: bool = False

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        return f"unique: requests of {self.max_tokens} tokens, none in common"

    def requests(self) -> Iterator[Request]:
        """Yield requests without end."""
        for number in itertools.count():
            yield Request(number=number, parts=(Part(f"unique {number}", self.max_tokens),))
