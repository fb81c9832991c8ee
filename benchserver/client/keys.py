"""The cache keys of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.keys import CacheKey


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
        start: int = 0,
        request_id: str,
        kv_rank: int | None,
        readers: int | None = None,
    ) -> CacheKey:
        """Return the key of the chunks `[start, end)`; `kv_rank` None means all ranks."""
        return CacheKey(
            model_name=self.model_name,
            world_size=self.world_size,
            worker_id=kv_rank,
            token_ids=tokens,
            start=start,
            end=end,
            request_id=request_id,
            cache_salt=self.cache_salt,
            num_kv_readers=self.readers if readers is None else readers,
        )
