"""`prefix-tree`: requests walk from the root of a tree to a leaf, popular children more often.

So prefixes are shared at several depths, as those of applications, their tools and documents are.
A node is known by the path to it, and children are drawn by number: a tree of any size is free.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.load.request import Part, Request
from benchserver.load.tokens import Draws
from benchserver.load.workloads.words import read_words
from benchserver.load.workloads.workload import Terms

MAX_BRANCHING = 65_536
MAX_DEPTH = 64
MAX_ZIPF = 10.0

_FORM = "prefix-tree[:branching=B,depth=D,zipf=Z,own=PERCENT]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrefixTree:
    """Nodes with `branching` children, `depth` of them on each path, then `own` per cent."""

    branching: int
    depth: int
    zipf: float
    own: float
    longest_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> AskedPrefixTree:
        """Return what was asked for; UsageError for other words."""
        words = read_words(text, form=_FORM, keys=("branching", "depth", "zipf", "own"))
        return cls(
            branching=words.whole("branching", low=1, high=MAX_BRANCHING, default=8),
            depth=words.whole("depth", low=1, high=MAX_DEPTH, default=4),
            zipf=words.number("zipf", low=0, high=MAX_ZIPF, default=1.0),
            own=words.number("own", low=0, high=100, default=25.0),
        )

    def bind(self, terms: Terms) -> PrefixTree:
        """Return the workload of a run."""
        return PrefixTree(
            max_tokens=terms.num_tokens,
            own=round(terms.num_tokens * self.own / 100),
            branching=self.branching,
            depth=self.depth,
            zipf=self.zipf,
            seed=terms.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree:
    """Requests of `max_tokens` tokens, the last `own` of which no other has."""

    max_tokens: int
    own: int
    branching: int
    depth: int
    zipf: float
    seed: int
    count: None = None
    is_timed: bool = False

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        return (
            f"prefix-tree: requests of {self.max_tokens} tokens, {self.own} of their own behind "
            f"{self.depth} nodes with {self.branching} children each, drawn by Zipf's law with "
            f"exponent {self.zipf:g}"
        )

    def requests(self) -> Iterator[Request]:
        """Yield requests without end."""
        draws = Draws.named(self.seed, "prefix-tree")
        popular = list(
            itertools.accumulate((rank + 1) ** -self.zipf for rank in range(self.branching))
        )
        sizes = shares(self.max_tokens - self.own, self.depth)
        for number in itertools.count():
            node, parts = "prefix-tree", list[Part]()
            for level, size in enumerate(sizes):
                share = draws.share(number * self.depth + level) * popular[-1]
                node += f"/{min(bisect_right(popular, share), self.branching - 1)}"
                parts.append(Part(node, size))
            parts.append(Part(f"prefix-tree own {number}", self.own))
            yield Request(number=number, parts=tuple(part for part in parts if part.count))


def shares(tokens: int, into: int) -> list[int]:
    """Return a number of tokens as so many shares that differ by 1 at most."""
    ends = [tokens * at // into for at in range(into + 1)]
    return [end - begin for begin, end in itertools.pairwise(ends)]
