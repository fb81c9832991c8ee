"""The server's state, and how a client's key becomes object keys.

`Core` is shared by all handlers and belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchserver.clock import Clock
from benchserver.refserver.arena import Arena
from benchserver.refserver.backing import Backing
from benchserver.refserver.cache import Cache, ObjectKey, Slot
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.hashing import ROOT, ChunkNamer
from benchserver.refserver.journal import Journal
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import Registry
from benchserver.refserver.sessions import Sessions
from protocol.keys import CacheKey, model_name_problem

Handler = Callable[[Sequence[Any]], Awaitable[Any]]
"""Takes a request's decoded payload and returns its result (VOID: none), or raises
RefusalError: then there is no reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Everything that lives as long as the server does."""

    config: ServerConfig
    clock: Clock
    journal: Journal
    arena: Arena
    cache: Cache
    sessions: Sessions
    registry: Registry
    copier: Copier
    namer: ChunkNamer = field(default_factory=ChunkNamer)
    backing: Backing | None = None
    """The L2 tiers, if there are any."""

    def commit(self, slots: Sequence[Slot]) -> None:
        """Make written slots visible, and hand them to the tiers."""
        self.cache.commit(slots)
        if self.backing is not None:
            self.backing.stored(slots)

    def object_bytes(self, model_name: str, world_size: int) -> int:
        """Return the size of a model's chunk objects, or 0 if no worker of it is registered."""
        for mapped in self.registry.mapped.values():
            if (mapped.model_name, mapped.world_size) == (model_name, world_size):
                return mapped.layout.object_bytes
        for engine in self.registry.engine.values():
            if (engine.model_name, engine.world_size) == (model_name, world_size):
                return engine.object_bytes
        return 0

    def objects_of(self, key: CacheKey) -> tuple[ObjectKey, ...]:
        """Return the objects of a worker's range `[start, end)`, one a chunk.

        Opens the request's session.  Raises RefusalError for a range or a worker that a real
        server does not answer.
        """
        problem = model_name_problem(key.model_name)
        if problem or key.worker_id is None:
            raise RefusalError(problem or "the key has no worker_id")
        size = self.config.chunk_size
        in_order = 0 <= key.start <= key.end <= len(key.token_ids)
        if not in_order or key.start % size or key.end % size:
            raise RefusalError(
                f"range [{key.start}, {key.end}) of {len(key.token_ids)} tokens does not consist "
                f"of whole chunks of {size}"
            )
        session = self.sessions.open(key.request_id, self.clock.now_ns())
        whole = session.chain_to(key.token_ids, key.end, size, chain=self.namer.chain)
        hashes = whole[key.start // size :]
        return tuple(object_key(key, chunk_hash, key.worker_id) for chunk_hash in hashes)

    def rows_of(self, key: CacheKey) -> Iterator[tuple[ObjectKey, ...]]:
        """Yield each whole chunk's objects up to `end`: of all ranks, or of the key's own."""
        ranks = range(key.world_size) if key.worker_id is None else (key.worker_id,)
        size = self.config.chunk_size
        tokens = key.token_ids[: max(0, key.end)]
        for chunk_hash in self.namer.chain(tokens, chunk_size=size, start=0, root=ROOT):
            yield tuple(object_key(key, chunk_hash, rank) for rank in ranks)


def object_key(key: CacheKey, chunk_hash: bytes, rank: int) -> ObjectKey:
    """Return the identity of one chunk of one rank."""
    return ObjectKey(chunk_hash, key.model_name, key.world_size, rank, key.cache_salt)
