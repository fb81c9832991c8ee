"""The server's state, and how a client's key becomes object keys.

`Core` is shared by all handlers and belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchserver.clock import Clock
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu.runtime import CudaRuntime
from benchserver.refserver.journal import Journal
from benchserver.refserver.objectkey import ObjectKey, object_key
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import MAX_WORLD_SIZE, Registry
from benchserver.refserver.sessions import Scope, Session, Sessions
from benchserver.refserver.store.arena import Arena
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.store.hashing import ROOT, ChunkNamer
from benchserver.refserver.store.slots import ObjectSlot, Reservation
from benchserver.refserver.tiers.backing import Backing
from protocol.keys import CacheKey, model_name_problem

Handler = Callable[[Sequence[Any]], Awaitable[Any]]
"""Takes a request's decoded payload and returns its result (VOID: none), or raises
RefusalError: then there is no reply."""


@dataclass(slots=True, eq=False, kw_only=True)
class LookupTotals:
    """What lookups asked for since the start, in chunks of all ranks; counted by `LookupOps`."""

    requested_chunks: int = 0
    hit_chunks: int = 0
    under_way: int = 0
    """How many look behind L1 just now."""


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
    cuda: CudaRuntime = field(default_factory=CudaRuntime)
    backing: Backing | None = None
    """The L2 tiers, if there are any."""
    lookups: LookupTotals = field(default_factory=LookupTotals)

    async def reserve(self, keys: Sequence[ObjectKey], group_bytes: Sequence[int]) -> Reservation:
        """Reserve as the cache does, where needed after write-backs that make the room."""
        if self.backing is not None:
            return await self.backing.reserve(keys, group_bytes)
        return self.cache.reserve(keys, group_bytes, self.clock.now_ns())

    def commit(self, slots: Sequence[ObjectSlot]) -> None:
        """Make written slots visible, and hand them to the tiers."""
        self.cache.commit(slots)
        if self.backing is not None:
            self.backing.stored(slots)

    def group_bytes(self, model_name: str, world_size: int) -> tuple[int, ...]:
        """Return the sizes of a model's objects by group; () if no worker of it is registered."""
        for mapped in self.registry.mapped.values():
            if (mapped.model_name, mapped.world_size) == (model_name, world_size):
                return mapped.layout.group_bytes
        for engine in self.registry.engine.values():
            if (engine.model_name, engine.world_size) == (model_name, world_size):
                return (engine.object_bytes,)
        return ()

    def groups_of(self, key: CacheKey) -> int:
        """Return how many objects a chunk of one rank has: as looked up, or as registered."""
        session = self.sessions.get(key.request_id)
        if session is not None and session.groups:
            return session.groups
        return max(1, len(self.group_bytes(key.model_name, key.world_size)))

    def touch(self, session: Session) -> None:
        """Make all that a request stored and retrieved the newest, its first chunk last."""
        scope = session.scope
        if scope is not None:
            ranks = range(scope.world_size)
            groups = range(scope.groups)
            self.cache.touch(
                [
                    ObjectKey(
                        chunk_hash, scope.model_name, scope.world_size, rank, scope.salt, group
                    )
                    for chunk_hash in session.hashes
                    for rank in ranks
                    for group in groups
                ]
            )

    def objects_of(self, key: CacheKey, groups: int = 1) -> tuple[ObjectKey, ...]:
        """Return the objects of a worker's range `[start, end)`: chunk by chunk, all groups.

        Opens the request's session.  Raises RefusalError for a range or a worker that a real
        server does not answer.
        """
        problem = model_name_problem(key.model_name)
        if problem or key.worker_id is None:
            raise RefusalError(problem or "the key has no worker_id")
        _check_world(key)
        size = self.config.chunk_size
        in_order = 0 <= key.start <= key.end <= len(key.token_ids)
        if not in_order or key.start % size or key.end % size:
            raise RefusalError(
                f"range [{key.start}, {key.end}) of {len(key.token_ids)} tokens does not consist "
                f"of whole chunks of {size}"
            )
        session = self.sessions.open(key.request_id, self.clock.now_ns())
        whole = session.chain_to(key.token_ids, key.end, size, chain=self.namer.chain)
        session.scope = Scope(key.model_name, key.world_size, key.cache_salt, groups)
        return tuple(
            object_key(key, chunk_hash, key.worker_id, group)
            for chunk_hash in whole[key.start // size :]
            for group in range(groups)
        )

    def rows_of(self, key: CacheKey) -> Iterator[tuple[ObjectKey, ...]]:
        """Yield each whole chunk's objects up to `end`, all groups: of all ranks, or of one."""
        _check_world(key)
        ranks = range(key.world_size) if key.worker_id is None else (key.worker_id,)
        groups = range(self.groups_of(key))
        size = self.config.chunk_size
        tokens = key.token_ids[: max(0, key.end)]
        for chunk_hash in self.namer.chain(tokens, chunk_size=size, start=0, root=ROOT):
            yield tuple(
                object_key(key, chunk_hash, rank, group) for rank in ranks for group in groups
            )


def _check_world(key: CacheKey) -> None:
    """Raise RefusalError for a world whose ranks nobody could walk through."""
    if key.world_size > MAX_WORLD_SIZE:
        raise RefusalError(f"world_size is {key.world_size}, expected at most {MAX_WORLD_SIZE}")
