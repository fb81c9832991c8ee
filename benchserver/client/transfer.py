"""What a transfer mode does for a worker: register, store and retrieve whole chunks.

Two modes implement it: `mapped` (lmcache_driven, the server maps our memory) and
`engine` (engine_driven, we copy to and from the server's pool, or send bytes inline).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchserver.kv.blocks import Window
from protocol.keys import CacheKey
from shapespec import ShapeSpec


class RefusedError(Exception):
    """The server answered that it did not do it; the text says what it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A transfer that the server says is done, and whose data has landed.

    All instants are those of the run's clock.  It begins with the first request.  `replied_ns` is
    when the last reply came, after our own copying where the mode has us copy; `landed_ns` when the
    data had landed: later where the server replies before it has copied (CUDA), else the same.
    `chunks` is how many chunks moved, which is fewer than asked for where the server held them
    already.
    """

    began_ns: int
    replied_ns: int
    landed_ns: int
    chunks: int

    @property
    def latency_ns(self) -> int:
        """Return how long it took until the data had landed."""
        return self.landed_ns - self.began_ns


def dtype_hint(spec: ShapeSpec) -> str:
    """Return what to say behind a failure if the spec has a dtype that engines do not send."""
    names = {group.dtype.name for group in spec.groups}
    fp8 = sorted(name for name in names if name.startswith("float8_"))
    if not fp8:
        return ""
    return f"; engines give fp8 KV as uint8, not as {' or '.join(fp8)}: put uint8 in the shape spec"


class TransferMode(Protocol):
    """One way to move KV pages between a worker's pool and a server."""

    transport: str
    """What really carries the bytes: `handle`, `shm` or `inline`; "" before registration."""

    async def register(self) -> None:
        """Register the worker's KV cache with the server."""
        ...

    async def unregister(self, *, timeout_ns: int) -> None:
        """Take the registration back; CallFailedError if the server does not say that it is."""
        ...

    async def store(self, key: CacheKey, window: Window) -> Moved:
        """STORE the key's chunks out of the window's blocks; RefusedError if the server says no."""
        ...

    async def retrieve(self, key: CacheKey, window: Window, *, skip_tokens: int = 0) -> Moved:
        """RETRIEVE the key's chunks into the window's blocks; RefusedError if it says no.

        With `skip_tokens` the server leaves the blocks alone that lie wholly in that many first
        tokens; ValueError in a mode in which it writes none itself.
        """
        ...

    async def close(self) -> None:
        """Give local resources back; sends nothing."""
        ...
