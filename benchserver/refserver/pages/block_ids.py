"""STORE's and RETRIEVE's block ids against a layout: pure checks, and their cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.refusal import RefusalError

BlockIds = Sequence[Sequence[int]]
ChunkIds = tuple[tuple[int, ...], ...]
"""One chunk's block ids, one tuple a kernel group."""


def cover_all(layout: KvLayout, block_ids: BlockIds, chunks: int) -> bool:
    """Tell whether every group has ids for every chunk.

    Raises RefusalError for lists that do not fit the groups at all.
    """
    if len(block_ids) != len(layout.groups):
        raise RefusalError(f"{len(block_ids)} block id lists for {len(layout.groups)} groups")
    pairs = list(zip(layout.groups, block_ids, strict=True))
    if any(len(ids) < chunks * group.blocks_per_chunk for group, ids in pairs):
        return False
    for group, ids in pairs:
        if len(ids) % group.blocks_per_chunk:
            raise RefusalError(f"{len(ids)} block ids, {group.blocks_per_chunk} a chunk")
    return True


def cut(layout: KvLayout, block_ids: BlockIds, chunks: int) -> tuple[ChunkIds, ...]:
    """Return each chunk's ids; ids beyond the last chunk are ignored."""
    per_group = []
    for group, ids in zip(layout.groups, block_ids, strict=True):
        n = group.blocks_per_chunk
        per_group.append([tuple(ids[i * n : (i + 1) * n]) for i in range(chunks)])
    return tuple(zip(*per_group, strict=True))


def exist(layout: KvLayout, chunk_ids: Sequence[ChunkIds]) -> bool:
    """Tell whether every id names a block of its group's tensors."""
    return all(
        0 <= block < group.num_blocks
        for ids in chunk_ids
        for group, blocks in zip(layout.groups, ids, strict=True)
        for block in blocks
    )


def is_null(ids: ChunkIds, null_block_id: int) -> bool:
    """Tell whether every id of the chunk is the null block: such a chunk is never stored.

    The rule (0.5.4 to 0.5.6) goes by object group: all ids of all its kernel groups.  It is applied
    as in the real server's default, in which all kernel groups are one object group: a chunk with
    null blocks in one kernel group and others in another is stored in both.
    """
    return all(block == null_block_id for blocks in ids for block in blocks)


def skipped_blocks(layout: KvLayout, chunk_index: int, skip_tokens: int) -> tuple[int, ...]:
    """Return, per group, how many leading blocks of a chunk lie wholly in the skipped tokens."""
    counts = []
    for group in layout.groups:
        whole = max(0, skip_tokens) // group.tokens_per_block
        left = whole - chunk_index * group.blocks_per_chunk
        counts.append(min(max(left, 0), group.blocks_per_chunk))
    return tuple(counts)
