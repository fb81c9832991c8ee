"""One simulated engine rank: its pool, its connection, its registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchserver.client.rpc import RpcClient
from benchserver.client.transfer import TransferMode
from benchserver.kv.host import HostPool
from protocol.keys import CacheKey

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
    rpc: RpcClient
    pool: HostPool
    mode: TransferMode
    registered: bool = False


def instance_id(nonce: int, rank: int) -> int:
    """Return a worker's instance id: unique for a run's 40-bit nonce."""
    return (nonce << MAX_RANK_BITS) | rank


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaker:
    """Builds the keys of one run."""

    model_name: str
    world_size: int
    cache_salt: str
    readers: int

    def key(
        self,
        tokens: Sequence[int],
        *,
        end: int,
        request_id: str,
        kv_rank: int | None,
        readers: int | None = None,
    ) -> CacheKey:
        """Return the key of the chunks `[0, end)`; `kv_rank` None means all ranks."""
        return CacheKey(
            model_name=self.model_name,
            world_size=self.world_size,
            worker_id=kv_rank,
            token_ids=tokens,
            start=0,
            end=end,
            request_id=request_id,
            cache_salt=self.cache_salt,
            num_kv_readers=self.readers if readers is None else readers,
        )
