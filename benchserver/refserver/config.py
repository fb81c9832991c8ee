"""What the embedded server is started with; validated before any IO."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import get_args

from benchserver.errors import UsageError, one_line
from benchserver.options.option import options_in
from benchserver.refserver.defaults import (
    DEFAULT_CHUNK_TOKENS,
    DEFAULT_EVICTION_RATIO,
    DEFAULT_EVICTION_TRIGGER_WATERMARK,
    DEFAULT_HOST,
    DEFAULT_L1_READ_TTL_S,
    DEFAULT_L1_WRITE_TTL_S,
    DEFAULT_RELEASE,
    DEFAULT_SESSION_TTL_S,
    DEFAULT_WORKER_REAP_TIMEOUT_S,
    DEFAULT_WORKER_REGISTRATION_GRACE_S,
)
from benchserver.refserver.options import (
    MAX_CHUNK_TOKENS,
    MAX_SECONDS,
    SERVE,
    L2Write,
    TransferMode,
)
from benchserver.refserver.store.freelist import ALIGN_BYTES
from benchserver.refserver.tiers.url import parse_tier_url
from protocol.dialect import Dialect
from protocol.dialects import dialect_of, known_releases
from protocol.httpapi import token_problem

ENGINE_NAME = "bench-server"
VERSION_SUFFIX = "-embedded"
"""Behind the release in the answer of `/version`: says who is speaking."""

FIRST_CUDA_RELEASE = "0.5.6"
"""Before it, a descriptor of a GPU tensor is a pickle, which is not read here."""

POOL_PREFIX = "lmcache_l1_pool_"
"""Stock servers name their shared pool with it (0.4.7 to 0.5.6)."""

MAX_PORT = 65535
MIN_REAP_S = 1
"""The server looks for silent clients once a second; the real one demands 30 s (0.5.6)."""

_HOST = re.compile(r"[!-~]{1,253}")
_POOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def spoken_releases() -> tuple[str, ...]:
    """Return the releases that the server can speak as, newest first.

    Only those whose rows a real server has confirmed, and which can serve a CPU client.
    """
    return tuple(release for release in known_releases() if dialect_of(release).verified)


def _option(name: str) -> str:
    """Return the option of `bench-server serve` that sets a field."""
    return next(option.name for option in options_in(SERVE) if option.field == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One embedded server.

    `port` and `http_port` 0 mean any free port.  `l1_bytes` is the arena's size.  `shm_name` ""
    means no shared pool: engine-driven chunks then travel inline.  `faults` are switched on from
    the start.  `release` is the server release whose wire is spoken.
    """

    l1_bytes: int
    release: str = DEFAULT_RELEASE
    host: str = DEFAULT_HOST
    port: int = 0
    http_host: str = DEFAULT_HOST
    http_port: int = 0
    chunk_size: int = DEFAULT_CHUNK_TOKENS
    transfer_mode: TransferMode = "auto"
    shm_name: str = ""
    l2: tuple[str, ...] = ()
    """URLs of the L2 tiers, nearest first."""
    l2_write: L2Write = "through"
    """When chunks are written to them: as they are stored, or as L1 evicts them and at the end."""
    faults: tuple[str, ...] = ()
    gpu: bool = False
    """Be ready for GPU clients from the start, or do not start; else when the first registers."""
    worker_reap_timeout_s: float = DEFAULT_WORKER_REAP_TIMEOUT_S
    """Silence after which a client that has PINGed is unregistered; 0: never, nor any other."""
    worker_registration_grace_s: float = DEFAULT_WORKER_REGISTRATION_GRACE_S
    """The same for a client that never PINGed."""
    session_ttl_s: float = DEFAULT_SESSION_TTL_S
    l1_write_ttl_s: int = DEFAULT_L1_WRITE_TTL_S
    l1_read_ttl_s: int = DEFAULT_L1_READ_TTL_S
    eviction_trigger_watermark: float = DEFAULT_EVICTION_TRIGGER_WATERMARK
    eviction_ratio: float = DEFAULT_EVICTION_RATIO
    """Shares: of the memory that is used, and of the number of objects."""
    http_token: str = field(default="", repr=False)
    """What HTTP requests must bring, /healthcheck excepted; "": nothing."""

    def __post_init__(self) -> None:
        """Raise UsageError for a value that cannot work."""
        self._check_addresses()
        if not 1 <= self.chunk_size <= MAX_CHUNK_TOKENS:
            raise UsageError(
                f"--chunk-size is {self.chunk_size}, expected 1 to {MAX_CHUNK_TOKENS} tokens"
            )
        if self.l1_bytes < ALIGN_BYTES:
            raise UsageError(
                f"--l1-size-gb gives {self.l1_bytes} bytes, expected at least {ALIGN_BYTES}"
            )
        if self.transfer_mode not in get_args(TransferMode):
            modes = ", ".join(get_args(TransferMode))
            raise UsageError(
                f"--supported-transfer-mode is {self.transfer_mode!r}, expected one of {modes}"
            )
        if self.release not in spoken_releases():
            raise UsageError(
                f"--as is {self.release!r}, expected one of {', '.join(spoken_releases())}"
            )
        if not (self.serves_mapped or self.serves_engine_driven):
            raise UsageError(
                f"--supported-transfer-mode is {self.transfer_mode}, which {self.release} does "
                "not have"
            )
        if self.gpu and not self.serves_cuda:
            raise UsageError(
                f"--gpu with --as {self.release} and --supported-transfer-mode "
                f"{self.transfer_mode}: GPU tensors are mapped in lmcache_driven mode, by releases "
                f"from {FIRST_CUDA_RELEASE} on"
            )
        self._check_times()
        for name in ("eviction_trigger_watermark", "eviction_ratio"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise UsageError(f"{_option(name)} is {share}, expected 0 to 1")
        if self.http_token and (problem := token_problem(self.http_token)):
            raise UsageError(problem)
        for url in self.l2:
            parse_tier_url(url)
        if self.l2_write not in get_args(L2Write):
            modes = ", ".join(get_args(L2Write))
            raise UsageError(f"--l2-write is {self.l2_write!r}, expected one of {modes}")
        if self.l2_write != "through" and not self.l2:
            raise UsageError(
                f"--l2-write is {self.l2_write}, but there is no L2; give it one (--l2)"
            )
        if self.shm_name and not _POOL_NAME.fullmatch(self.shm_name):
            raise UsageError(
                f"--shm-name is {self.shm_name!r}, expected at most 200 of A-Z a-z 0-9 _ . -"
            )

    def _check_addresses(self) -> None:
        for name in ("host", "http_host"):
            host = getattr(self, name)
            if not _HOST.fullmatch(host):
                raise UsageError(
                    f"{_option(name)} is {one_line(ascii(host), 60)}, expected an address or a "
                    "name of this machine, such as 127.0.0.1"
                )
        for name in ("port", "http_port"):
            port = getattr(self, name)
            if not 0 <= port <= MAX_PORT:
                raise UsageError(
                    f"{_option(name)} is {port}, expected 0 (any free one) to {MAX_PORT}"
                )

    def _check_times(self) -> None:
        for name in ("session_ttl_s", "l1_write_ttl_s", "l1_read_ttl_s"):
            seconds = getattr(self, name)
            if not 0 < seconds <= MAX_SECONDS:
                raise UsageError(
                    f"{_option(name)} is {seconds}, expected more than 0 to {MAX_SECONDS} s"
                )
        reap, grace = self.worker_reap_timeout_s, self.worker_registration_grace_s
        if reap != 0 and not MIN_REAP_S <= reap <= MAX_SECONDS:
            raise UsageError(
                f"--worker-reap-timeout-seconds is {reap}, "
                f"expected 0 (never) or {MIN_REAP_S} to {MAX_SECONDS} s"
            )
        if not reap <= grace <= MAX_SECONDS:
            raise UsageError(
                f"--worker-registration-grace-seconds is {grace}, expected at least "
                f"--worker-reap-timeout-seconds, which is {reap}, and at most {MAX_SECONDS} s"
            )

    @property
    def dialect(self) -> Dialect:
        """Return the wire that is spoken."""
        return dialect_of(self.release)

    @property
    def version(self) -> str:
        """Return the answer of `/version`."""
        return self.release + VERSION_SUFFIX

    @property
    def serves_mapped(self) -> bool:
        """Tell whether clients may register KV tensors for the server to map."""
        return self.transfer_mode != "engine_driven" and self.dialect.maps_cpu

    @property
    def serves_cuda(self) -> bool:
        """Tell whether clients may register KV tensors that lie on a GPU."""
        return self.serves_mapped and self.dialect.maps_cuda

    @property
    def serves_engine_driven(self) -> bool:
        """Tell whether clients may copy chunks themselves."""
        return self.transfer_mode != "lmcache_driven" and self.dialect.engine_driven

    @property
    def pool_name(self) -> str:
        """Return the shared pool's segment name, or "" where there is none.

        A server that serves lmcache_driven alone makes no pool, whatever its name (0.5.6).
        """
        shared = self.serves_engine_driven and self.shm_name
        return POOL_PREFIX + self.shm_name if shared else ""
