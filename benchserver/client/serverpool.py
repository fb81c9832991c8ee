"""A server's shared-memory L1 pool, mapped into this process: engine_driven reads and writes it.

Its name, its size and every slot come from a peer: each is checked before a byte is touched.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re

import numpy as np
import numpy.typing as npt

from benchserver.errors import FatalError
from benchserver.shmnames import SHM_DIR
from protocol.errors import RemoteProtocolError
from protocol.messages import PoolInfo, Slot

_POOL_NAME = re.compile(r"/?[A-Za-z0-9_.\-]{1,200}")

U8 = npt.NDArray[np.uint8]


class ServerPool:
    """The server's L1 pool, mapped read-write; the server owns and unlinks it."""

    def __init__(self, info: PoolInfo) -> None:
        """Map the pool that the server named; FatalError if it is not there or too small."""
        if not _POOL_NAME.fullmatch(info.shm_name) or info.shm_name.strip("/.") == "":
            raise FatalError(f"engine_driven: the server named its pool {info.shm_name[:80]!a}")
        path = SHM_DIR / info.shm_name.lstrip("/")
        try:
            # As shm_open(3) does: a link could lead to any file of ours.
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(path, flags)
        except OSError as error:
            raise FatalError(
                f"engine_driven: cannot map the server's pool {path}: {error.strerror}; "
                "the server must run on this host, as this user, with this /dev/shm"
            ) from error
        try:
            size = os.fstat(fd).st_size
            if size < info.pool_bytes or info.pool_bytes == 0:
                raise FatalError(
                    f"engine_driven: the server says its pool {path} has {info.pool_bytes} "
                    f"bytes, the segment has {size}"
                )
            self._map = mmap.mmap(fd, info.pool_bytes)
        except OSError as error:
            raise FatalError(
                f"engine_driven: cannot map the {info.pool_bytes} bytes of the server's pool "
                f"{path}: {error.strerror}; see `ulimit -v`"
            ) from error
        finally:
            os.close(fd)
        self._bytes: U8 | None = np.frombuffer(self._map, dtype=np.uint8)

    def slot(self, slot: Slot, expected_bytes: int) -> U8:
        """Return a slot's memory; RemoteProtocolError if it leaves the pool or has another size."""
        memory = self._bytes
        if memory is None:
            raise RemoteProtocolError("the pool is closed")
        if slot.length != expected_bytes or slot.offset + slot.length > memory.size:
            raise RemoteProtocolError(
                f"slot at {slot.offset} has {slot.length} bytes, expected {expected_bytes} "
                f"within a pool of {memory.size}"
            )
        return memory[slot.offset : slot.offset + slot.length]

    def close(self) -> None:
        """Unmap the pool."""
        self._bytes = None
        # A cancelled thread may still hold a view; the mapping goes with it.
        with contextlib.suppress(BufferError):
            self._map.close()
