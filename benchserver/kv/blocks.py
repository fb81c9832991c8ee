"""Which blocks a request uses: block tables for source and destination, and the canaries.

Pure.  A window is a contiguous range of block ids; within it the block table is a permutation,
so a server that ignores the order of block ids is found, while filling and checking stay
sequential.  Destination windows also hold canary blocks, at both ends and scattered inside, that
a RETRIEVE must leave alone.  Block 0 is the null block of servers since 0.5.4: never handed out.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

NULL_BLOCKS = 1
EDGE_CANARIES = 2
_BLOCKS_PER_CANARY = 8
"""One canary for every 8 destination blocks, where the pool has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Block ids `[first, first + count)`: the block table and the canaries among them."""

    first: int
    count: int
    block_ids: tuple[int, ...]
    canaries: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """The blocks of one request on one rank; the two windows do not overlap."""

    source: Window
    destination: Window


def needed_blocks(request_blocks: int) -> int:
    """Return the smallest pool, in blocks, for a request: null, source, destination, canaries."""
    return NULL_BLOCKS + 2 * request_blocks + EDGE_CANARIES


def plan_blocks(
    *, num_blocks: int, request_blocks: int, seed: int, turn: int, rank: int
) -> BlockPlan:
    """Choose the blocks of request number `turn` on one rank; the same for the same arguments.

    Turns walk over the pool, so that every block is used, and memory is touched only once.

    Raises ValueError if the pool has fewer than `needed_blocks(request_blocks)` blocks.
    """
    spare = num_blocks - needed_blocks(request_blocks)
    if spare < 0:
        raise ValueError(
            f"{num_blocks} blocks, but {needed_blocks(request_blocks)} are needed for "
            f"{request_blocks} source and {request_blocks} destination blocks, "
            f"{EDGE_CANARIES} canaries and the null block"
        )
    text = f"{seed} blocks {turn} {rank}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    draw = random.Random(int.from_bytes(digest, "little"))
    inner = min(spare, request_blocks // _BLOCKS_PER_CANARY)
    span = 2 * request_blocks + EDGE_CANARIES + inner
    places = (num_blocks - NULL_BLOCKS) // span
    slack = (num_blocks - NULL_BLOCKS) % span
    # The last place ends at the last block, so that the odd blocks behind are used too.
    place = (turn + rank) % places
    first = NULL_BLOCKS + place * span + (slack if place == places - 1 else 0)
    if draw.random() < 0.5:
        source = _window(draw, first, request_blocks, canaries=())
        destination = _destination(draw, first + request_blocks, request_blocks, inner)
    else:
        destination = _destination(draw, first, request_blocks, inner)
        source = _window(draw, first + destination.count, request_blocks, canaries=())
    return BlockPlan(source=source, destination=destination)


def _destination(draw: random.Random, first: int, blocks: int, inner: int) -> Window:
    count = blocks + EDGE_CANARIES + inner
    inside = draw.sample(range(first + 1, first + count - 1), inner)
    canaries = (first, *sorted(inside), first + count - 1)
    return _window(draw, first, count, canaries=canaries)


def _window(draw: random.Random, first: int, count: int, *, canaries: tuple[int, ...]) -> Window:
    taken = set(canaries)
    ids = [block for block in range(first, first + count) if block not in taken]
    draw.shuffle(ids)
    return Window(first=first, count=count, block_ids=tuple(ids), canaries=canaries)
