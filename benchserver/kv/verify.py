"""Bytes to evidence: does every page hold what it must, and if not, whose bytes are they?

Pure functions over numpy views.  Evidence is `match`, `mismatch` (with the first fault),
`untouched` (the poison is still there) or `absent` (nobody looked); only `match` proves anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchserver.kv.evidence import Evidence, EvidenceKind, PageFault, PageOwner
from benchserver.kv.pattern import (
    CANARY_BYTE,
    POISON_BYTE,
    REUSED_MASK,
    U8,
    U64,
    GroupPattern,
    is_filled_with,
)

SLICE_BYTES = 1 << 20
"""Pages are checked in slices of this size, which stay in the cache of one core."""

SHOWN_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A chunk sequence whose pages may turn up in the wrong place."""

    label: str
    digests: tuple[int, ...]


def bad_pages(pages: np.ndarray, pattern: GroupPattern, keys: U64) -> list[tuple[int, int]]:
    """Return (plane, column) of every page that differs from its pattern.

    `pages` has shape (planes, columns, words of a page), in the pattern's dtype; `keys` has shape
    (planes, columns).
    """
    page_words = pages.shape[2]
    page_size = page_words * pages.itemsize
    step = max(1, SLICE_BYTES // max(1, page_size))
    scratch = np.empty((min(step, pages.shape[1]), page_words), dtype=pages.dtype)
    found: list[tuple[int, int]] = []
    for plane in range(pages.shape[0]):
        for start in range(0, pages.shape[1], step):
            part = pages[plane, start : start + step]
            expected = scratch[: part.shape[0]]
            key_words = pattern.key_words(keys[plane, start : start + step])
            np.bitwise_xor(pattern.words, key_words, out=expected)
            if not same_bytes(part, expected):
                wrong = np.flatnonzero((part != expected).any(axis=1))
                found.extend((plane, start + int(column)) for column in wrong)
    return found


def same_bytes(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Tell whether two C-contiguous arrays hold the same bytes.

    By memcmp(3), which reads memory once: comparing arrays writes a third one, at half the speed.
    """
    if first.nbytes != second.nbytes:
        return False
    if not first.flags.c_contiguous or not second.flags.c_contiguous:
        raise ValueError("memcmp needs C-contiguous arrays")
    return _memcmp(first.ctypes.data, second.ctypes.data, first.nbytes) == 0


def _load_memcmp() -> Callable[[int, int, int], int]:
    memcmp = ctypes.CDLL(None).memcmp
    memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    memcmp.restype = ctypes.c_int
    return cast(Callable[[int, int, int], int], memcmp)


_memcmp = _load_memcmp()


def first_difference(seen: U8, expected: U8) -> int:
    """Return the offset of the first differing byte, or -1."""
    differs = np.flatnonzero(seen != expected)
    return int(differs[0]) if differs.size else -1


def describe_owner(
    seen: U8,
    offset: int,
    pattern: GroupPattern,
    candidates: Sequence[Candidate],
    *,
    ranks: int,
    blocks_per_chunk: int,
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
    owner = find_owner(
        seen, offset, pattern, candidates, ranks=ranks, blocks_per_chunk=blocks_per_chunk
    )
    if owner:
        return owner
    before = find_owner(
        seen ^ np.uint8(REUSED_MASK),
        offset,
        pattern,
        candidates,
        ranks=ranks,
        blocks_per_chunk=blocks_per_chunk,
    )
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
    blocks_per_chunk: int,
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
        for owner in _owners_in(candidate, key, pattern, rank, blocks_per_chunk)
    ]
    if len(owners) != 1:
        return ""
    owner = owners[0]
    return (
        f"the page of {owner.label} chunk {owner.chunk} rank {owner.rank} layer {owner.layer} "
        f"plane {plane_name(pattern, owner.plane)} block {owner.block}"
    )


def _owners_in(
    candidate: Candidate, key: np.uint64, pattern: GroupPattern, rank: int, blocks_per_chunk: int
) -> Iterable[PageOwner]:
    for layer in pattern.layers:
        keys = pattern.page_keys(
            candidate.digests, rank=rank, layer=layer, blocks_per_chunk=blocks_per_chunk
        )
        for plane, column in np.argwhere(keys == key):
            yield PageOwner(
                label=candidate.label,
                chunk=int(column) // blocks_per_chunk,
                rank=rank,
                layer=layer,
                plane=int(plane),
                block=int(column) % blocks_per_chunk,
            )


def plane_name(pattern: GroupPattern, plane: int) -> str:
    """Return K or V, or `latent` for the single plane of an MLA group."""
    return "latent" if pattern.group.is_mla else "KV"[plane]


def verify_filled(pages: U8, byte: int, describe: Callable[[int], PageFault]) -> Evidence:
    """Check that every page (row) holds only `byte`; `describe(row)` tells of the first fault."""
    good = (pages == byte).all(axis=1)
    wrong = np.flatnonzero(~good)
    return Evidence(
        kind=EvidenceKind.MISMATCH if wrong.size else EvidenceKind.MATCH,
        pages=pages.shape[0],
        bad_pages=int(wrong.size),
        checked_bytes=int(pages.size),
        first=describe(int(wrong[0])) if wrong.size else None,
    )
