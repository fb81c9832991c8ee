"""What a load asks of a server, before any token is drawn: values.

A request is a row of parts, and a part is the beginning of an endless run of tokens that has a
name.  So two requests have equal beginnings exactly where their parts are equal, and a workload
that runs for days keeps nothing long.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Part:
    """The first `count` tokens of the run called `label`; at least one."""

    label: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; `number` counts those of a workload from 0.

    `not_before_ns`: its instant from the start, if the workload says when it comes; else None.
    `after`: the number of an earlier request that must have ended `think_ns` before, or None.
    """

    number: int
    parts: tuple[Part, ...]
    not_before_ns: int | None = None
    after: int | None = None
    think_ns: int = 0

    @property
    def num_tokens(self) -> int:
        """Return the tokens of all parts."""
        return sum(part.count for part in self.parts)


def first_tokens(parts: tuple[Part, ...], limit: int) -> tuple[Part, ...]:
    """Return the parts of the first `limit` tokens, of which there is at least one."""
    kept: list[Part] = []
    for part in parts:
        if limit <= 0:
            break
        kept.append(Part(part.label, min(part.count, limit)))
        limit -= part.count
    return tuple(kept)


def chunk_ids(request: Request, chunk_tokens: int) -> list[bytes]:
    """Return a name for each whole chunk of a request, chained over all before it.

    Two chunks have equal names exactly where they, and all before them, have equal tokens.
    Nothing is drawn for it.
    """
    ids: list[bytes] = []
    state = hashlib.blake2b(digest_size=_ID_BYTES)
    room = chunk_tokens
    for part in request.parts:
        at = 0
        while part.count - at >= room:
            state.update(f"{part.label}\0{at}\0{room}\0".encode())
            ids.append(state.digest())
            at, room = at + room, chunk_tokens
        if at < part.count:
            state.update(f"{part.label}\0{at}\0{part.count - at}\0".encode())
            room -= part.count - at
    return ids
