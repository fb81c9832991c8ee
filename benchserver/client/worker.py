"""One simulated engine rank: its pool, its connection, its registration."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.client.connection import Connection
from benchserver.client.transfer import TransferMode
from benchserver.history import worker_label
from benchserver.kv.pool import KvPool

MAX_RANK_BITS = 12
"""Instance ids stay below 2^53, so that JSON carries them exactly."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A rank with its memory and its socket.

    `kv_rank` is the rank whose objects it stores and retrieves: its own, or 0 for MLA.  `client` is
    the number of the engine that it belongs to; None: the run plays only one.
    """

    rank: int
    kv_rank: int
    instance_id: int
    rpc: Connection
    pool: KvPool
    mode: TransferMode
    client: int | None = None

    @property
    def place(self) -> str:
        """Return what lines call it."""
        return worker_label(self.client, self.rank)


def instance_id(nonce: int, number: int) -> int:
    """Return the instance id of a run's worker of that number: unique for its 40-bit nonce."""
    return (nonce << MAX_RANK_BITS) | number
