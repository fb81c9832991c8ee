"""`trace:FILE`: the requests of a recorded trace, at its instants.

Equal hash ids are equal tokens, drawn from the seed.  As engines do unless they are told otherwise,
only what was asked with is stored: the tokens of the answers (`output_length`) are in a later
request where they are asked with again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchserver.errors import FatalError, UsageError, one_line
from benchserver.load.request import Part, Request, first_tokens
from benchserver.load.tracefile import BLOCK_TOKENS, MAX_INPUT_TOKENS, Entry, TraceFile
from benchserver.load.workloads.workload import Terms

MIN_SPEEDUP = 0.001
MAX_SPEEDUP = 1_000_000.0

_MS_NS = 1_000_000
_CHANGED = "the trace has changed since the run began"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a file that was looked at; asked for, and the workload itself.

    Instants count from that of the first request and are divided by `speedup`.  Requests of more
    than `limit` tokens are cut to their first ones; `cut` of them are.
    """

    file: TraceFile
    speedup: float
    limit: int
    count: int
    max_tokens: int
    cut: int
    begin_ms: float
    end_ms: float
    is_timed: bool = True

    @classmethod
    def read(cls, path: str, *, speedup: float | None, limit: int | None) -> Trace:
        """Return the trace of a file, after a look at all of it; UsageError if it is none."""
        speedup = 1.0 if speedup is None else speedup
        limit = MAX_INPUT_TOKENS if limit is None else limit
        file = TraceFile(path)
        count = cut = longest = 0
        begin_ms = end_ms = 0.0
        for entry in file.entries():
            begin_ms = begin_ms if count else entry.timestamp_ms
            end_ms = entry.timestamp_ms
            count += 1
            cut += entry.input_tokens > limit
            longest = max(longest, min(entry.input_tokens, limit))
        if not count:
            raise UsageError(f"--workload trace:{one_line(path, 200)}: no requests in it")
        return cls(
            file=file,
            speedup=speedup,
            limit=limit,
            count=count,
            max_tokens=longest,
            cut=cut,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )

    @property
    def longest_tokens(self) -> int:
        """Return the tokens of the longest request."""
        return self.max_tokens

    def bind(self, terms: Terms) -> Trace:
        """Return the workload of a run."""
        return self

    def describe(self) -> str:
        """Return what it asks, in one line for reports."""
        span_s = (self.end_ms - self.begin_ms) / 1000
        cut = f"; {self.cut} cut to {self.limit}" if self.cut else ""
        return (
            f"trace {one_line(self.file.path, 80)}: {self.count} requests over {span_s:g} s"
            f"{f' in {span_s / self.speedup:g} s' if self.speedup != 1 else ''}, "
            f"{self.max_tokens} tokens at most{cut}; answers are not stored"
        )

    def requests(self) -> Iterator[Request]:
        """Yield all requests; FatalError if the file is no longer what it was."""
        number = 0
        try:
            for entry in self.file.entries():
                if number < self.count:
                    yield self._request(number, entry)
                number += 1
        except UsageError as error:
            raise FatalError(f"{_CHANGED}: {error}") from error
        if number != self.count:
            raise FatalError(
                f"{_CHANGED}: {one_line(self.file.path, 200)} had {self.count} requests, and has "
                f"{number}"
            )

    def _request(self, number: int, entry: Entry) -> Request:
        blocks = (Part(f"trace {one}", BLOCK_TOKENS) for one in entry.hash_ids)
        limit = min(entry.input_tokens, self.limit)
        since_ms = entry.timestamp_ms - self.begin_ms
        return Request(
            number=number,
            parts=first_tokens(tuple(blocks), limit),
            not_before_ns=round(since_ms * _MS_NS / self.speedup),
        )
