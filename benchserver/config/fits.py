"""Whether what is asked for fits the server that was met: its chunk size, its L1."""

from __future__ import annotations

from benchserver.errors import FatalError, UsageError
from benchserver.geometry import Geometry
from benchserver.kv.blocks import needed_blocks


def check_geometry(geometry: Geometry) -> None:
    """Raise UsageError if the server's chunk size does not fit the tokens or the pool."""
    spec, chunk_tokens = geometry.spec, geometry.chunk_tokens
    if not geometry.whole_blocks:
        raise UsageError(
            f"block size {spec.block_size} does not divide the server's chunk size "
            f"{chunk_tokens}; change BS in --kvcache-shape-spec, or the server's --chunk-size"
        )
    if geometry.chunks == 0:
        raise UsageError(
            f"--num-tokens {geometry.num_tokens} is less than one chunk of {chunk_tokens} tokens: "
            "only whole chunks are cached"
        )
    blocks, needed = geometry.blocks, needed_blocks(geometry.blocks)
    if spec.num_blocks < needed:
        raise UsageError(
            f"the pool has {spec.num_blocks} blocks (NB), but {geometry.chunks} chunks of "
            f"{chunk_tokens} tokens need {needed}: {blocks} source + {blocks} destination + "
            "2 canaries + the null block; raise NB or lower --num-tokens"
        )


def check_against_l1(geometry: Geometry, *, kv_ranks: int, l1_bytes: int) -> None:
    """Refuse a sequence that the server's L1 cannot hold at once, as a RETRIEVE needs it.

    `kv_ranks` ranks have KV of their own.  `l1_bytes` 0: not known.  Raises FatalError.
    """
    needed = geometry.nbytes * kv_ranks
    if 0 < l1_bytes < needed:
        raise FatalError(
            f"the server's L1 holds {l1_bytes} bytes, a sequence of {geometry.chunks} chunks on "
            f"{kv_ranks} KV ranks needs {needed}; start it with a larger "
            "--l1-size-gb, or lower --num-tokens"
        )
