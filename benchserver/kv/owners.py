"""Whose bytes a wrong page holds: poison, a canary, another page of this run, or nobody's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchserver.kv.evidence import PageOwner
from benchserver.kv.pattern import (
    CANARY_BYTE,
    POISON_BYTE,
    REUSED_MASK,
    U8,
    GroupPattern,
    is_filled_with,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A chunk sequence whose pages may turn up in the wrong place."""

    label: str
    digests: tuple[int, ...]


def describe_owner(
    seen: U8,
    offset: int,
    pattern: GroupPattern,
    candidates: Sequence[Candidate],
    *,
    ranks: int,
) -> str:
    """Say whose bytes stand at `offset` of a page: poison, a canary, another page, or nobody's."""
    if is_filled_with(seen, POISON_BYTE):
        return "poison: nothing was written"
    if is_filled_with(seen, CANARY_BYTE):
        return "a canary"
    if not seen.any():
        return "zeros"
    if seen[offset] == POISON_BYTE and bool((seen[offset:] == POISON_BYTE).all()):
        return f"poison from byte {offset} on: partly written"
    owner = find_owner(seen, offset, pattern, candidates, ranks=ranks)
    if owner:
        return owner
    before = find_owner(seen ^ np.uint8(REUSED_MASK), offset, pattern, candidates, ranks=ranks)
    if before:
        return f"{before}, as overwritten after STORE was acknowledged: it was read too late"
    return "bytes of no page of this run"


def find_owner(
    seen: U8,
    offset: int,
    pattern: GroupPattern,
    candidates: Sequence[Candidate],
    *,
    ranks: int,
) -> str:
    """Return whose page the word around `offset` comes from, or "" if no single page fits."""
    if pattern.dtype is not np.uint64:
        return ""
    word = offset // 8
    key = np.uint64(seen.view(np.uint64)[word] ^ pattern.words[word])
    owners = [
        owner
        for candidate in candidates
        for rank in range(ranks)
        for owner in _owners_in(candidate, key, pattern, rank)
    ]
    if len(owners) != 1:
        return ""
    owner = owners[0]
    return (
        f"the page of {owner.label} chunk {owner.chunk} rank {owner.rank} layer {owner.layer} "
        f"plane {owner.plane} block {owner.block}"
    )


def _owners_in(
    candidate: Candidate, key: np.uint64, pattern: GroupPattern, rank: int
) -> Iterable[PageOwner]:
    for layer in pattern.layers:
        keys = pattern.page_keys(candidate.digests, rank=rank, layer=layer)
        for plane, column in np.argwhere(keys == key):
            yield PageOwner(
                label=candidate.label,
                chunk=int(column) // pattern.blocks_per_chunk,
                rank=rank,
                layer=layer,
                plane=pattern.plane_name(int(plane)),
                block=int(column) % pattern.blocks_per_chunk,
            )
