"""What looking at bytes has shown: values only, so that judging needs no array library.

Evidence is `match`, `mismatch` (with the first fault), `untouched` (the poison is still there) or
`absent` (nobody looked); only `match` proves anything.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOwner:
    """Whose page it is; `block` counts within the chunk, `layer` over the whole spec.

    `plane` is K or V, or `latent` for the single plane of an MLA group.
    """

    label: str
    chunk: int
    rank: int
    layer: int
    plane: str
    block: int


class EvidenceKind(enum.Enum):
    """What looking at the bytes has shown."""

    MATCH = "match"
    MISMATCH = "mismatch"
    UNTOUCHED = "untouched"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFault:
    """The first wrong byte of one page; `offset` counts bytes from the page's start."""

    place: PageOwner
    group: int
    block_id: int
    offset: int
    expected: bytes
    seen: bytes
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The result of looking at `pages` pages (`checked_bytes` bytes)."""

    kind: EvidenceKind
    pages: int = 0
    bad_pages: int = 0
    checked_bytes: int = 0
    first: PageFault | None = None


ABSENT = Evidence(kind=EvidenceKind.ABSENT)


def merge(parts: Iterable[Evidence]) -> Evidence:
    """Return the evidence of all parts together; no part at all is `absent`."""
    items = list(parts)
    if not items or any(part.kind is EvidenceKind.ABSENT for part in items):
        return ABSENT
    kinds = {part.kind for part in items}
    kind = kinds.pop() if len(kinds) == 1 else EvidenceKind.MISMATCH
    first = next((part.first for part in items if part.first is not None), None)
    return Evidence(
        kind=kind,
        pages=sum(part.pages for part in items),
        bad_pages=sum(part.bad_pages for part in items),
        checked_bytes=sum(part.checked_bytes for part in items),
        first=first,
    )
