"""What the embedded server is started with; validated before any IO."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from benchserver.errors import UsageError
from benchserver.refserver.tiers.url import parse_tier_url

TransferMode = Literal["auto", "lmcache_driven", "engine_driven"]

ENGINE_NAME = "bench-server"
VERSION = "0.5.6-embedded"
"""Answer of `/version`: the wire is that of 0.5.6, and the suffix says who is speaking."""

POOL_PREFIX = "lmcache_l1_pool_"
"""Stock servers name their shared pool with it (0.4.7 to 0.5.6)."""

ALIGN_BYTES = 4096
"""Objects start at multiples of a page, as in the real server's default."""

MAX_CHUNK_TOKENS = 1 << 20
"""A chunk of a million tokens is nobody's."""

MAX_PORT = 65535
_POOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One embedded server.

    `port` and `http_port` 0 mean any free port.  `l1_bytes` is the arena's size.  `shm_name` ""
    means no shared pool: engine-driven chunks then travel inline.  `faults` are switched on from
    the start.
    """

    l1_bytes: int
    host: str = "127.0.0.1"
    port: int = 0
    http_host: str = "127.0.0.1"
    http_port: int = 0
    chunk_size: int = 256
    transfer_mode: TransferMode = "auto"
    shm_name: str = ""
    l2: tuple[str, ...] = ()
    """URLs of the L2 tiers, nearest first."""
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for a value that cannot work."""
        for name, port in (("port", self.port), ("http_port", self.http_port)):
            if not 0 <= port <= MAX_PORT:
                raise UsageError(f"{name} is {port}, expected 0 (any free one) to {MAX_PORT}")
        if not 1 <= self.chunk_size <= MAX_CHUNK_TOKENS:
            raise UsageError(
                f"chunk_size is {self.chunk_size}, expected 1 to {MAX_CHUNK_TOKENS} tokens"
            )
        if self.l1_bytes < ALIGN_BYTES:
            raise UsageError(f"l1_bytes is {self.l1_bytes}, expected at least {ALIGN_BYTES}")
        if self.transfer_mode not in get_args(TransferMode):
            modes = ", ".join(get_args(TransferMode))
            raise UsageError(f"transfer_mode is {self.transfer_mode!r}, expected one of {modes}")
        for url in self.l2:
            parse_tier_url(url)
        if self.shm_name and not _POOL_NAME.fullmatch(self.shm_name):
            raise UsageError(
                f"shm_name is {self.shm_name!r}, expected at most 200 of A-Z a-z 0-9 _ . -"
            )
        if self.faults:
            # Loaded here: a fault knows the whole server, and so this module.
            from benchserver.refserver.faults.parser import parse_switches

            parse_switches(self.faults)

    @property
    def serves_mapped(self) -> bool:
        """Tell whether clients may register KV tensors for the server to map."""
        return self.transfer_mode != "engine_driven"

    @property
    def serves_engine_driven(self) -> bool:
        """Tell whether clients may copy chunks themselves."""
        return self.transfer_mode != "lmcache_driven"

    @property
    def pool_name(self) -> str:
        """Return the shared pool's segment name, or "" where there is none.

        A server that serves lmcache_driven alone makes no pool, whatever its name (0.5.6).
        """
        shared = self.serves_engine_driven and self.shm_name
        return POOL_PREFIX + self.shm_name if shared else ""
