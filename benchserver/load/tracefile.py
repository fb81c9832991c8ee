"""A trace of requests in Mooncake's public format: one JSON object a line, read as a stream.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}

`timestamp` is in milliseconds and never goes back.  Each of `hash_ids` stands for a block of 512
tokens; the last one for what is left of `input_length`.  A file is read twice: once before the run,
so that nothing begins with a trace that is wrong in its last line, and once as the run goes on.

Reads its file, and nothing else: this is the one place of the room that does.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from benchserver.errors import UsageError, one_line, os_reason

BLOCK_TOKENS = 512
"""Of each hash id."""

MAX_LINES = 1_000_000
"""Of a file.  All are looked at before the run, some 50,000 in a second."""

MAX_INPUT_TOKENS = 1 << 22
"""Of a request: more than any model takes."""

MAX_LINE_BYTES = 1 << 20
"""What the hash ids of the longest request take, with room to spare."""

_MAX_TIMESTAMP_MS = 1e15
_MAX_OUTPUT_TOKENS = 1 << 40
_MAX_HASH_ID = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a trace."""

    timestamp_ms: float
    input_tokens: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The file of a trace."""

    path: str

    def entries(self) -> Iterator[Entry]:
        """Yield all entries; UsageError names the first line that is none, or out of order."""
        last_ms, lines = 0.0, 0
        try:
            with self._opened() as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    lines += 1
                    if lines > MAX_LINES:
                        raise self._problem(
                            f"more than {MAX_LINES} lines; use a part of it, as by head -n"
                        )
                    if not line.isspace():
                        entry = self._entry(line, lines, last_ms)
                        last_ms = entry.timestamp_ms
                        yield entry
        except OSError as error:
            raise self._problem(os_reason(error)) from error

    def _opened(self) -> BinaryIO:
        # Whoever opens a pipe waits for its writer, and nothing of it can be read twice.
        try:
            mode = Path(self.path).stat().st_mode
        except ValueError as error:
            raise self._problem("not the name of a file") from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise self._problem("not a regular file: a trace is read twice")
        return open(self.path, "rb")

    def _entry(self, line: bytes, number: int, last_ms: float) -> Entry:
        if len(line) > MAX_LINE_BYTES:
            raise self._problem(f"longer than {MAX_LINE_BYTES} bytes", number)
        try:
            document = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            torn = "" if line.endswith(b"\n") else ", and it has no end: the file may be torn"
            raise self._problem(f"not a JSON object{torn}", number) from error
        problem = _document_problem(document) or _order_problem(document, last_ms)
        if problem:
            raise self._problem(problem, number)
        return Entry(
            timestamp_ms=float(document["timestamp"]),
            input_tokens=document["input_length"],
            hash_ids=tuple(document["hash_ids"]),
        )

    def _problem(self, what: str, line: int = 0) -> UsageError:
        place = f", line {line}" if line else ""
        return UsageError(f"--workload trace:{one_line(self.path, 200)}{place}: {what}")


def _document_problem(document: Any) -> str:
    """Say what is wrong with an entry's fields, or ""."""
    if not isinstance(document, dict):
        return f"{_shown(document)} is not a JSON object"
    stamp = document.get("timestamp")
    if isinstance(stamp, bool) or not isinstance(stamp, int | float):
        return _wrong(document, "timestamp", "milliseconds")
    if not 0 <= stamp <= _MAX_TIMESTAMP_MS:
        return _wrong(document, "timestamp", f"0 to {_MAX_TIMESTAMP_MS:g} milliseconds")
    if not _is_whole(document.get("input_length"), 1, MAX_INPUT_TOKENS):
        return _wrong(document, "input_length", f"a whole number from 1 to {MAX_INPUT_TOKENS}")
    if not _is_whole(document.get("output_length"), 0, _MAX_OUTPUT_TOKENS):
        return _wrong(document, "output_length", "a whole number of tokens, at least 0")
    return _hash_problem(document)


def _hash_problem(document: Mapping[str, Any]) -> str:
    ids, tokens = document.get("hash_ids"), document["input_length"]
    if not isinstance(ids, list):
        return _wrong(document, "hash_ids", "a list of whole numbers")
    wanted = math.ceil(tokens / BLOCK_TOKENS)
    if len(ids) != wanted:
        return (
            f"{len(ids)} hash_ids, expected {wanted}: one for each {BLOCK_TOKENS} tokens of "
            f"input_length {tokens}"
        )
    for one in ids:
        if not _is_whole(one, 0, _MAX_HASH_ID):
            return f"{_shown(one)} in hash_ids, expected a whole number, at least 0"
    return ""


def _order_problem(document: Mapping[str, Any], last_ms: float) -> str:
    stamp = document["timestamp"]
    if stamp < last_ms:
        return f"timestamp {stamp} comes before {last_ms:.15g} of the line above: sort the file"
    return ""


def _is_whole(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _wrong(document: Mapping[str, Any], key: str, expected: str) -> str:
    found = f"{key} is {_shown(document[key])}" if key in document else f"{key} is missing"
    return f"{found}, expected {expected}"


def _shown(value: Any) -> str:
    """Return the beginning of a value of any size."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    return one_line(json.dumps(value) if isinstance(value, str) else value, 40)
