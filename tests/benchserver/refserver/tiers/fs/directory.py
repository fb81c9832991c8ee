"""An fs tier's directory, seen from outside."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import UNLIMITED, FsConfig
from benchserver.refserver.tiers.fs.tier import FsTier
from benchserver.refserver.tiers.keyname import key_bytes, name_of


@asynccontextmanager
async def opened(directory: Path, capacity_bytes: int = UNLIMITED) -> AsyncIterator[FsTier]:
    tier = FsTier(FsConfig(directory=directory, capacity_bytes=capacity_bytes))
    try:
        yield tier
    finally:
        await tier.close()


def file_of(directory: Path, which: ObjectKey) -> Path:
    name = name_of(key_bytes(which))
    return directory / "objects-v1" / name[:2] / name


def files_in(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "objects-v1").rglob("*") if path.is_file())


def bytes_in(directory: Path) -> int:
    """Return what all files take; one that goes while it is looked at takes nothing."""
    total = 0
    for path in [*files_in(directory), *(directory / "temporary").iterdir()]:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def replace_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
