"""Room for what a run stores, on a server that drops what it has no room for.

A real LMCache server acknowledges a STORE before its data is in L1, looks once a second whether L1
is fuller than its watermark, and drops what finds no room until then.  A bench at `--interval 0`
stores faster than that.  So whoever fills such a server empties it before each run, and gives it
an L1 that holds a whole run below the watermark, or stores no more than the L1 that it has holds.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from protocol.dialects import dialect_of, release_of
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.httpapi import HTTP_051, VERSION_PATH, HttpRoutes, parse_status, parse_version
from shapespec import parse_shape_spec, token_bytes
from tests.mitm.running import Urls

WATERMARK = 0.8
"""The share of L1 from which on a real server evicts, by default (0.5.6)."""

SPARE = 1.2
"""So many times what is stored: objects are aligned, and one is being written."""

LEAST_GIB = 0.0625
_GIB = 1 << 30
_ANSWER_WITHIN_S = 30.0


class NoRoomError(Exception):
    """A server cannot be emptied, or holds too little; one line."""


def stored_bytes(spec: str, *, tokens: int, sequences: int, ranks: int = 1) -> int:
    """Return how much a run stores at most: every rank a part of its own."""
    return token_bytes(parse_shape_spec(spec)) * tokens * sequences * ranks


def l1_for(nbytes: int) -> tuple[str, str]:
    """Return the server's option for an L1 that holds so much, and evicts none of it."""
    size_gib = max(LEAST_GIB, nbytes * SPARE / WATERMARK / _GIB)
    return "--l1-size-gb", f"{size_gib:.4f}"


def sequences_that_fit(l1_bytes: int, sequence_bytes: int) -> int:
    """Return how many sequences an L1 holds before anything is evicted."""
    return int(l1_bytes * WATERMARK / SPARE) // sequence_bytes


def clear(server: Urls, routes: HttpRoutes = HTTP_051, *, force: bool = True) -> None:
    """Empty the server's L1; `force`: of what is locked too, which old releases always do."""
    body = json.dumps({"tier": "l1", "force": force}).encode()
    request = urllib.request.Request(
        server.http_url + routes.clear, data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_WITHIN_S):
        pass


def make_room(server: Urls, *, sequence_bytes: int, sequences: int) -> int:
    """Empty a server that somebody else started; return how many of the sequences it holds.

    What is locked stays.  Raises NoRoomError if it does not answer, or holds not even one.
    """
    try:
        release = release_of(parse_version(_fetched(server.http_url + VERSION_PATH)))
        routes = dialect_of(release).http
        clear(server, routes, force=False)
        l1_bytes = parse_status(_fetched(server.http_url + routes.status)).l1_bytes
    except (OSError, ValueError, LocalProtocolError, RemoteProtocolError) as error:
        raise NoRoomError(f"{server.http_url} could not be emptied: {error}") from error
    held = sequences_that_fit(l1_bytes, sequence_bytes)
    if not held:
        raise NoRoomError(
            f"L1 has {l1_bytes / 1e9:.2f} GB, too little for one sequence of "
            f"{sequence_bytes / 1e9:.2f} GB; start the server with a larger one"
        )
    return min(held, sequences)


def _fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_ANSWER_WITHIN_S) as answer:
        return json.load(answer)
