"""A process that writes to an fs tier until it is killed.

    python -m tests.benchserver.refserver.tiers.fs.killed_writer DIRECTORY FIRST

Each of its tasks writes versions FIRST, FIRST + 1, ... of its own keys, and prints key and
version when a write was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import sys
from itertools import count
from pathlib import Path

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import FsConfig
from benchserver.refserver.tiers.fs.tier import FsTier

TASKS = 4
KEYS_A_TASK = 3
KEYS = TASKS * KEYS_A_TASK
NBYTES = 100_000
_VERSION = struct.Struct(">Q")


def payload(number: int, version: int) -> bytes:
    """Return bytes that say which version of which key they are."""
    noise = random.Random(f"{number} {version}").randbytes(NBYTES - _VERSION.size)
    return _VERSION.pack(version) + noise


def version_of(data: bytes) -> int:
    return int(_VERSION.unpack_from(data)[0])


async def write_versions(tier: FsTier, task: int, first: int) -> None:
    for version in count(first):
        for number in range(task * KEYS_A_TASK, (task + 1) * KEYS_A_TASK):
            key = ObjectKey(number.to_bytes(32, "big"), "m", 1, 0, "")
            await tier.write(key, memoryview(payload(number, version)))
            # One write of the system: a line is there whole, or not at all.
            os.write(1, b"%d %d\n" % (number, version))


async def main() -> None:
    tier = FsTier(FsConfig(directory=Path(sys.argv[1])))
    first = int(sys.argv[2])
    await asyncio.gather(*(write_versions(tier, task, first) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main())
