"""A server's pool in /dev/shm, as a test makes one, and slots of it."""

from __future__ import annotations

import os
from typing import Any

from benchserver.shmnames import SHM_DIR
from protocol.messages import Slot

NAME = f"bench_test_{os.getpid()}_pool"
SHAPE, OBJECT_BYTES = (2, 2, 4, 4), 128


def slot(offset: int, **changes: Any) -> Slot:
    fields: dict[str, Any] = {"length": OBJECT_BYTES, "shape": SHAPE, "dtype": "float16"}
    return Slot(offset=offset, **{**fields, **changes})


class PoolFile:
    """The server's pool of 1024 bytes, seen through its file in /dev/shm."""

    def __init__(self) -> None:
        (SHM_DIR / NAME).write_bytes(bytes(1024))

    def read(self) -> bytes:
        return (SHM_DIR / NAME).read_bytes()

    def write(self, offset: int, data: bytes) -> None:
        with (SHM_DIR / NAME).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    @property
    def untouched(self) -> bool:
        return self.read() == bytes(1024)
