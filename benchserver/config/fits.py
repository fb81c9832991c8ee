"""Whether what is asked for fits the server that was met: its chunk size, its L1."""

from __future__ import annotations

from benchserver.errors import FatalError, UsageError
from benchserver.geometry import Geometry
from benchserver.kv.blocks import EDGE_CANARIES, leases_needed


def check_geometry(geometry: Geometry, *, in_flight: int = 1) -> None:
    """Raise UsageError if the server's chunk size does not fit the tokens or the pool.

    Each pool has a lease for each of `in_flight` requests.
    """
    spec, chunk_tokens = geometry.spec, geometry.chunk_tokens
    if not geometry.whole_blocks:
        raise UsageError(
            f"block size {spec.block_size} does not divide the server's chunk size "
            f"{chunk_tokens}; change BS in --kvcache-shape-spec, or the server's --chunk-size"
        )
    if geometry.chunks == 0:
        raise UsageError(
            f"requests of {geometry.num_tokens} tokens are less than one chunk of {chunk_tokens} "
            "tokens, and only whole chunks are cached: raise --num-tokens (of a trace "
            "--max-input-tokens)"
        )
    blocks, needed = geometry.blocks, leases_needed(geometry.blocks, in_flight)
    if spec.num_blocks >= needed:
        return
    of_one = f"{blocks} source + {blocks} destination + {EDGE_CANARIES} canaries"
    who, sum_text, less = "", of_one, "lower --num-tokens"
    if in_flight > 1:
        who = f"{in_flight} requests at once of "
        sum_text = f"{in_flight} x ({of_one})"
        less = "lower --num-tokens (of a trace --max-input-tokens) or --concurrency"
    raise UsageError(
        f"the pool has {spec.num_blocks} blocks (NB), but {who}{geometry.chunks} chunks of "
        f"{chunk_tokens} tokens need {needed}: {sum_text} + the null block; raise NB or {less}"
    )


def check_against_l1(geometry: Geometry, *, kv_ranks: int, l1_bytes: int, at_once: int = 1) -> None:
    """Refuse sequences that the server's L1 cannot hold at once, as their RETRIEVEs need it.

    `kv_ranks` ranks have KV of their own.  `l1_bytes` 0: not known.  Raises FatalError.
    """
    needed = geometry.nbytes * kv_ranks * at_once
    who, need = ("a sequence", "needs") if at_once == 1 else (f"{at_once} sequences", "need")
    less = "--num-tokens" if at_once == 1 else "--num-tokens or --concurrency"
    if 0 < l1_bytes < needed:
        raise FatalError(
            f"the server's L1 holds {l1_bytes} bytes, {who} of {geometry.chunks} chunks on "
            f"{kv_ranks} KV ranks {need} {needed}; start it with a larger "
            f"--l1-size-gb, or lower {less}"
        )
