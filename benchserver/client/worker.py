"""One simulated engine rank: its pool, its connection, its registration."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.client.connection import Connection
from benchserver.client.transfer import TransferMode
from benchserver.kv.pool import KvPool

MAX_RANK_BITS = 12
"""Instance ids stay below 2^53, so that JSON carries them exactly."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A rank with its memory and its socket.

    `kv_rank` is the rank whose objects it stores and retrieves: its own, or 0 for MLA.
    """

    rank: int
    kv_rank: int
    instance_id: int
    rpc: Connection
    pool: KvPool
    mode: TransferMode


def instance_id(nonce: int, rank: int) -> int:
    """Return a worker's instance id: unique for a run's 40-bit nonce."""
    return (nonce << MAX_RANK_BITS) | rank
