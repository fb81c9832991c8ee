"""`churn:X`: a working set of X times the server's L1, so that it must evict and be asked again.

Every request of the set is made once, in order, and from then on drawn with equal chances.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.errors import UsageError
from benchserver.load.request import Part, Request
from benchserver.load.tokens import Draws
from benchserver.load.workloads.words import Words, read_words
from benchserver.load.workloads.workload import Terms

MIN_TIMES = 0.01
MAX_TIMES = 1000.0

_MAX_L1_BYTES = 1 << 50
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_FORM = "churn:X[,l1=SIZE] with X times the server's L1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedChurn:
    """`churn:X`; `l1_bytes` 0: the server is asked."""

    text: str
    times: float
    l1_bytes: int
    longest_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> AskedChurn:
        """Return what was asked for; UsageError for other words."""
        words = read_words(text, form=_FORM, keys=("X", "l1"), bare="X")
        return cls(
            text=text,
            times=words.number("X", low=MIN_TIMES, high=MAX_TIMES),
            l1_bytes=_size(words, words.values["l1"]) if "l1" in words.values else 0,
        )

    def bind(self, terms: Terms) -> Churn:
        """Return the workload of a run; UsageError where nobody knows L1, or it holds nothing."""
        l1_bytes = self.l1_bytes or terms.l1_bytes
        if not l1_bytes:
            raise UsageError(
                f"--workload {self.text}: the server does not say how large its L1 is; say it, as "
                f"in {self.text},l1=4GiB"
            )
        held = l1_bytes // terms.chunk_bytes
        if not held:
            raise UsageError(
                f"--workload {self.text}: an L1 of {l1_bytes} bytes holds no chunk of "
                f"{terms.chunk_bytes} bytes"
            )
        each = max(1, terms.num_tokens // terms.chunk_tokens)
        return Churn(
            max_tokens=terms.num_tokens,
            documents=max(1, math.ceil(self.times * held / each)),
            times=self.times,
            l1_chunks=held,
            seed=terms.seed,
        )


def _size(words: Words, text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,16})([KMGT]iB)?", text)
    size = int(found[1]) * _UNITS[found[2] or ""] if found else 0
    if not 1 <= size <= _MAX_L1_BYTES:
        raise words.problem("l1 is not a size, expected bytes or KiB, MiB, GiB or TiB, as in 4GiB")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """`documents` different requests of `max_tokens` tokens, asked for again and again."""

    max_tokens: int
    documents: int
    times: float
    l1_chunks: int
    seed: int
    count: None = None
    is_timed: bool = False

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        return (
            f"churn: {self.documents} different requests of {self.max_tokens} tokens, "
            f"{self.times:g} times an L1 of {self.l1_chunks} chunks; each once, then drawn"
        )

    def requests(self) -> Iterator[Request]:
        """Yield requests without end."""
        draws = Draws.named(self.seed, "churn")
        for number in itertools.count():
            document = number
            if number >= self.documents:
                document = int(draws.share(number) * self.documents)
            yield Request(number=number, parts=(Part(f"churn {document}", self.max_tokens),))
