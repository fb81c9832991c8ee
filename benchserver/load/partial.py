"""How many tokens a RETRIEVE in part skips, and why there may be none: pure.

An engine that has the first tokens of a request already asks RETRIEVE to skip them
(`skip_first_n_tokens`).  Blocks that lie wholly in what is skipped must stay as they are; the
number is rounded down to whole blocks (0.5.6).
"""

from __future__ import annotations

import hashlib
from typing import Literal

SkipUnit = Literal["blocks", "chunks"]
"""What is skipped: any number of blocks, or whole chunks alone.  Half of the time it comes with a
part of the next block, which must be written."""


def why_never(every: int, *, transport: str, blocks: int, chunks: int, unit: SkipUnit) -> str:
    """Return why no sequence of so many blocks is retrieved in part, or "" if some may be."""
    if every == 0:
        return "--partial-retrieve-every 0"
    if transport != "handle":
        return "the client copies, so no server is asked to skip"
    if blocks < 2:
        return "a sequence is one block, so none could be skipped and one restored"
    if unit == "chunks" and chunks < 2:
        return "a sequence is one chunk, and --partial-skip chunks skips whole ones"
    return ""


def skip_tokens(
    *,
    seed: int,
    turn: int,
    chunks: int,
    blocks_per_chunk: int,
    block_size: int,
    unit: SkipUnit = "blocks",
) -> int:
    """Return how many tokens the partial RETRIEVE number `turn` skips.

    At least one whole block is skipped and one is not.  From turn to turn the offset inside a
    chunk grows by one block, so that each has its turn, in a chunk that is drawn; with the unit
    `chunks` it stays 0.  Every other turn, beginning with the first, skips a part of the next block
    too, which must be written.

    Raises ValueError for a sequence of less than two blocks, or of less than two chunks if whole
    ones are to be skipped.
    """
    if unit == "chunks" and chunks < 2:
        raise ValueError(f"{chunks} chunks: fewer than two")
    if chunks * blocks_per_chunk < 2:
        raise ValueError(f"{chunks} chunks of {blocks_per_chunk} blocks: fewer than two blocks")
    text = f"{seed} skip {turn}"
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    one, other = (int.from_bytes(part, "little") for part in (digest[:8], digest[8:]))
    offset = (seed + turn) % blocks_per_chunk if unit == "blocks" else 0
    if offset:
        blocks = one % chunks * blocks_per_chunk + offset
    else:  # whole chunks, and the last one must remain
        blocks = (1 + one % (chunks - 1)) * blocks_per_chunk if chunks > 1 else 1
    # Each offset comes with a part in one round over them and without in the next.
    rounds, within = divmod(turn, blocks_per_chunk)
    has_part = block_size > 1 and (rounds + within) % 2 == 0
    return blocks * block_size + (1 + other % (block_size - 1) if has_part else 0)
