"""What a tier is opened with; nothing here costs time to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchserver.clock import NS_PER_MS

GB = 1 << 30
"""A GB of capacity or throughput: 2**30 bytes, as in LMCache's mock store and in --l1-size-gb."""

UNLIMITED = 1 << 62
"""Capacity of a tier that has none of its own; more bytes than any store has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FsConfig:
    """Where the files are, and how many bytes of them there may be."""

    directory: Path
    capacity_bytes: int = UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class MockConfig:
    """What the store that is not there can do."""

    capacity_bytes: int
    latency_ns: int = NS_PER_MS
    read_bytes_per_s: int = 2 * GB
    write_bytes_per_s: int = 2 * GB
    keeps_data: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeConfig:
    """Which Mooncake Store, and how much memory it gets and takes."""

    master: str
    """HOST:PORT of its master."""
    metadata: str
    """URL of its HTTP metadata server."""
    protocol: str = "tcp"
    segment_bytes: int = GB
    """Memory that is mounted into the store; 0: the store has that of others alone."""
    buffer_bytes: int = GB // 4
    """Memory that objects pass through."""


TierConfig = FsConfig | MockConfig | MooncakeConfig
