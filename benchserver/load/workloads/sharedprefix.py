"""`shared-prefix:P`: all requests begin alike, as those with one system prompt do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.load.request import Part, Request
from benchserver.load.workloads.words import read_words
from benchserver.load.workloads.workload import Terms

_FORM = "shared-prefix:P with P per cent of the tokens in common, 0 to 100"


@dataclass(frozen=True, slots=True)
class AskedSharedPrefix:
    """`shared-prefix:P`."""

    percent: float
    longest_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> AskedSharedPrefix:
        """Return what was asked for; UsageError for other words."""
        words = read_words(text, form=_FORM, keys=("P",), bare="P")
        return cls(words.number("P", low=0, high=100))

    def bind(self, terms: Terms) -> SharedPrefix:
        """Return the workload of a run."""
        return SharedPrefix(
            max_tokens=terms.num_tokens, shared=round(terms.num_tokens * self.percent / 100)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """Requests of `max_tokens` tokens, of which the first `shared` are the same in all."""

    max_tokens: int
    shared: int
    count: None = None
    is_timed: bool = False

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        return (
            f"shared-prefix: requests of {self.max_tokens} tokens, the first {self.shared} in "
            "common"
        )

    def requests(self) -> Iterator[Request]:
        """Yield requests without end."""
        for turn in itertools.count():
            parts = (
                Part("shared-prefix", self.shared),
                Part(f"shared-prefix {turn}", self.max_tokens - self.shared),
            )
            yield Request(number=turn, parts=tuple(part for part in parts if part.count))
