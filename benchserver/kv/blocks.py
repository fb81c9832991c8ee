"""Which blocks a request uses: block tables for source and destination, and the canaries.

Pure.  A window is a contiguous range of block ids; within it the block table is a permutation,
so a server that ignores the order of block ids is found, while filling and checking stay
sequential.  Destination windows also hold canary blocks, at both ends and scattered inside, that
a RETRIEVE must leave alone.  Block 0 is the null block of servers since 0.5.4: never handed out.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace

NULL_BLOCKS = 1
EDGE_CANARIES = 2
_BLOCKS_PER_CANARY = 8
"""One canary for every 8 destination blocks, where the pool has room."""

PLACES = 2
_TURNS_AT_PLACES = 64
"""For this many turns the same few places of the pool are used, then the next few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Block ids `[first, first + count)`: the block table and the canaries among them."""

    first: int
    count: int
    block_ids: tuple[int, ...]
    canaries: tuple[int, ...]

    def first_blocks(self, count: int) -> Window:
        """Return a destination of the first `count` blocks of the table: what a hit is read into.

        The blocks that are cut off count as canaries, so `poison` marks them and
        `verify_canaries` finds each that a RETRIEVE of the hit has written; `verify` takes the
        digests of the chunks that were hit.  Call all three with this window.  ValueError unless
        there are so many blocks, and at least one.
        """
        self._check_count(count)
        cut = self.block_ids[count:]
        canaries = tuple(sorted((*self.canaries, *cut)))
        return replace(self, block_ids=self.block_ids[:count], canaries=canaries)

    def packed(self, count: int) -> Window:
        """Return a source of `count` blocks side by side: for the chunks that did not hit.

        A permutation of the window's first blocks, so that `fill` can write them, with the
        digests of those chunks, and STORE reads them; the window's other blocks are not touched.
        `verify` takes this window and the same digests.  ValueError for a window with canaries, or
        unless there are so many blocks, and at least one.
        """
        self._check_count(count)
        check_fillable(self)
        end = self.first + count
        ids = tuple(block for block in self.block_ids if block < end)
        return replace(self, count=count, block_ids=ids)

    def _check_count(self, count: int) -> None:
        if not 0 < count <= len(self.block_ids):
            raise ValueError(f"{count} of the {len(self.block_ids)} blocks of a window")

    def chunk_tables(self, blocks_per_chunk: int) -> list[tuple[int, ...]]:
        """Return the block table cut into chunks."""
        starts = range(0, len(self.block_ids), blocks_per_chunk)
        return [self.block_ids[start : start + blocks_per_chunk] for start in starts]


def check_skipped(window: Window, skipped: int, *, looked_at: bool) -> None:
    """Raise ValueError if skipping leaves no page to look at, on the side that is `looked_at`.

    True means the skipped blocks themselves, False the rest of the block table.
    """
    blocks = len(window.block_ids)
    if looked_at and not 0 < skipped <= blocks:
        raise ValueError(f"{skipped} of {blocks} blocks skipped: none to see")
    if not looked_at and not 0 <= skipped < blocks:
        raise ValueError(f"{skipped} of {blocks} blocks skipped: none is left")


def check_fillable(window: Window) -> None:
    """Raise ValueError if other blocks lie between those of the window's table."""
    if len(window.block_ids) != window.count:
        raise ValueError(
            f"a window of {window.count} blocks with {len(window.block_ids)} in its table cannot "
            "be filled: only a source window, without canaries, can"
        )


def check_window(window: Window, num_blocks: int) -> None:
    """Raise ValueError for blocks outside the window or the pool: a device would not refuse."""
    used = (*window.block_ids, *window.canaries)
    check_blocks(window, min(used), max(used), num_blocks)


def check_blocks(window: Window, least: int, most: int, num_blocks: int) -> None:
    """Raise ValueError unless a window's blocks, from `least` to `most`, are in it and the pool."""
    end = window.first + window.count
    if not 0 <= window.first <= least <= most < end <= num_blocks:
        raise ValueError(
            f"blocks {least} to {most} in a window [{window.first}, {end}) of a pool of "
            f"{num_blocks} blocks"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """The blocks of one request on one rank; the two windows do not overlap."""

    source: Window
    destination: Window


def leases_needed(request_blocks: int, in_flight: int) -> int:
    """Return the smallest pool, in blocks, for so many requests at once, each in a lease.

    The null block, and for each lease source, destination and canaries.
    """
    return NULL_BLOCKS + in_flight * (2 * request_blocks + EDGE_CANARIES)


def lease_plan(
    *,
    num_blocks: int,
    request_blocks: int,
    seed: int,
    turn: int,
    rank: int,
    lease: int = 0,
    leases: int = 1,
) -> BlockPlan:
    """Choose the blocks of request number `turn` on one rank; the same for the same arguments.

    The pool is divided into `leases` regions of equal size; blocks of one `lease` all lie in its
    region, so that as many requests can be under way at once.  In its region, turns keep to a few
    places for a while, since the first touch of memory costs several times a later one, and walk
    over all of it in the long run.

    Raises ValueError if there is no such lease, or if the pool has fewer than
    `leases_needed(request_blocks, leases)` blocks.
    """
    if not 0 <= lease < leases:
        raise ValueError(f"lease {lease} of {leases}")
    room = (num_blocks - NULL_BLOCKS) // leases
    spare = room - 2 * request_blocks - EDGE_CANARIES
    if spare < 0:
        raise ValueError(
            f"{num_blocks} blocks, but {leases_needed(request_blocks, leases)} are needed: "
            f"{leases} x ({request_blocks} source + {request_blocks} destination + "
            f"{EDGE_CANARIES} canaries) + the null block"
        )
    text = f"{seed} blocks {turn} {rank}" + (f" {lease}" if lease else "")
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    draw = random.Random(int.from_bytes(digest, "little"))
    inner = min(spare, request_blocks // _BLOCKS_PER_CANARY)
    span = 2 * request_blocks + EDGE_CANARIES + inner
    first = NULL_BLOCKS + lease * room + _place(room, span, turn + rank)
    if draw.random() < 0.5:
        source = _window(draw, first, request_blocks, canaries=())
        destination = _destination(draw, first + request_blocks, request_blocks, inner)
    else:
        destination = _destination(draw, first, request_blocks, inner)
        source = _window(draw, first + destination.count, request_blocks, canaries=())
    return BlockPlan(source=source, destination=destination)


def _place(room: int, span: int, turn: int) -> int:
    """Return where in `room` blocks the span of a turn begins."""
    places = room // span
    batch, within = divmod(turn, _TURNS_AT_PLACES)
    index = (batch * PLACES + within % PLACES) % places
    # Neighbouring indices lie far apart, so that a few turns reach both ends of the pool.
    index = index // 2 if index % 2 == 0 else places - 1 - index // 2
    # Every other time the last place ends at the pool's end, so that the odd blocks are used too.
    at_end = index == places - 1 and within // PLACES % 2 == 0
    return room - span if at_end else index * span


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
