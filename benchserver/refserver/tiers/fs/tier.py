"""`fs:///dir`: one file an object, in a directory that outlives the server.

    dir/lock              held by the one server that uses the directory
    dir/temporary/        files that are being written; what a killed server left goes at the start
    dir/objects-v1/ab/    objects by the hash of their key, sharded by its first two digits

Only files with names that this tier gives are deleted, in directories that are not links:
a link in the place of one is refused.

A write is acknowledged when its object is visible and synced, so `flush` has nothing to wait for.
The index of what is there belongs to the event loop; it is read from the directory once, at the
start, and sizes are counted from the first moment.  All that changes one object's file is done
under that object's lock, so index and directory agree.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from benchserver.errors import UsageError, os_reason
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import FsConfig
from benchserver.refserver.tiers.framing import FORMAT_VERSION, MAX_KEY_BYTES, header_bytes
from benchserver.refserver.tiers.fs.keylocks import KeyLocks
from benchserver.refserver.tiers.fs.objectfile import (
    CorruptError,
    FileIdentity,
    NewFile,
    Submitted,
    read_object,
    read_size,
    remove_if,
    sync_directory,
    write_object,
)
from benchserver.refserver.tiers.keyname import NAME, key_bytes, name_of
from benchserver.refserver.tiers.lru import Lru
from benchserver.refserver.tiers.threads import TierThreads
from benchserver.refserver.tiers.tier import (
    TierError,
    TierMissError,
    TierStats,
    closed_error,
    counted_read,
    counted_write,
)

READ_THREADS = 4
WRITE_THREADS = 4
"""They wait for the disk more than they work; writes never keep reads from a thread."""

_SHARD_CHARS = 2
_SHARDS = [f"{number:0{_SHARD_CHARS}x}" for number in range(16**_SHARD_CHARS)]
_TEMPORARY_NAME = re.compile(rf"{NAME.pattern}-[0-9]+")


class FsTier:
    """Objects as files.  Opening reads the directory, blocks, and raises UsageError."""

    name = "fs"
    verifiable = True

    def __init__(self, config: FsConfig) -> None:
        directory = config.directory
        self._capacity_bytes = config.capacity_bytes
        self._objects = directory / f"objects-v{FORMAT_VERSION}"
        self._temporary = directory / "temporary"
        self._stats = TierStats()
        self._index: Lru[str, int] = Lru()
        self._locks = KeyLocks()
        self._serial = count()
        self._incoming_bytes = 0
        self._busy = 0
        self._open = True
        try:
            # Its last part alone: a mistyped path should not become a tree.
            directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = _lock_directory(directory)
        except OSError as error:
            raise UsageError(f"L2 directory {directory}: {os_reason(error)}") from error
        try:
            self._recover()
        except OSError as error:
            os.close(self._lock)
            where = f" ({error.filename})" if error.filename else ""
            raise UsageError(f"L2 directory {directory}: {os_reason(error)}{where}") from error
        except UsageError:
            os.close(self._lock)
            raise
        self._reading = TierThreads(READ_THREADS, "fs-tier-read")
        self._writing = TierThreads(WRITE_THREADS, "fs-tier-write")

    @property
    def is_healthy(self) -> bool:
        """Say yes: a directory that fails may do better the next time."""
        return True

    @property
    def stats(self) -> TierStats:
        """Return a copy of the numbers as they are now."""
        return replace(
            self._stats,
            objects=len(self._index),
            used_bytes=self._index.used_bytes,
            capacity_bytes=self._capacity_bytes,
            queued=self._busy,
        )

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        """Return how many of the leading keys are there, as far as the index knows."""
        self._check_open()
        for offset, key in enumerate(keys):
            if self._index.use(name_of(key_bytes(key))) is None:
                return offset
        return len(keys)

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        """Fill `out` from the object's file; `prefetch` makes no difference here.

        A file that is not what was written is removed, and is a miss.
        """
        encoded_key = key_bytes(key)
        name = name_of(encoded_key)
        path = self._path_of(name)
        with counted_read(self._stats, out.nbytes), self._at_work():
            if self._index.use(name) is None:
                raise TierMissError(f"{path}: no such object")
            try:
                await self._reading.run(read_object, path, encoded_key, out.cast("B"))
            except FileNotFoundError as error:
                await self._forget(name, None)
                raise TierMissError(f"{path}: {os_reason(error)}") from error
            except CorruptError as error:
                self._stats.corrupt += 1
                await self._forget(name, error.identity)
                raise TierMissError(f"{path}: {error}; dropped") from error
            except OSError as error:
                raise TierError(f"{path}: {os_reason(error)}") from error

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        """Replace the object's file; on return the new one is visible and synced."""
        encoded_key = key_bytes(key)
        if len(encoded_key) > MAX_KEY_BYTES:
            raise TierError(f"a key of {len(encoded_key)} bytes, expected at most {MAX_KEY_BYTES}")
        size = header_bytes(encoded_key) + data.nbytes
        with counted_write(self._stats, data.nbytes), self._at_work(incoming_bytes=size):
            await self._make_room(size)
            name = name_of(encoded_key)
            async with self._locks.of(name):
                await self._replace(name, encoded_key, data.cast("B"))

    async def flush(self) -> None:
        """Return at once: what was acknowledged is safe already."""
        self._check_open()

    async def close(self) -> None:
        """Wait for the files that are being read and written, and give up the directory."""
        if not self._open:
            return
        self._open = False
        await self._reading.close()
        await self._writing.close()
        os.close(self._lock)

    async def _replace(self, name: str, encoded_key: bytes, data: memoryview) -> None:
        """Write an object's file under its lock, and note in the index what became of it."""
        temporary = self._temporary / f"{name}-{next(self._serial)}"
        new = NewFile(path=self._path_of(name), temporary=temporary)
        try:
            await self._writing.run(write_object, new, encoded_key, data)
        except OSError as error:
            raise TierError(f"{new.path}: {os_reason(error)}; not stored") from error
        finally:
            if new.submitted is Submitted.LANDED:
                size = header_bytes(encoded_key) + data.nbytes
                self._index.put(name, size, size)
            elif new.submitted is Submitted.LOST:
                self._index.drop(name)

    async def _make_room(self, size: int) -> None:
        """Evict the oldest until all that is being written has room."""
        limit_bytes = self._capacity_bytes - self._incoming_bytes
        if limit_bytes < 0:
            raise TierError(
                f"no room for {size} bytes: {self._incoming_bytes} are being written, "
                f"the capacity is {self._capacity_bytes}"
            )
        while self._index.used_bytes + self._incoming_bytes > self._capacity_bytes:
            name = self._index.oldest()
            if name is None:
                return
            await self._evict(name)

    async def _evict(self, name: str) -> None:
        """Remove an object, unless somebody has replaced or removed it in the meantime."""
        path = self._path_of(name)
        async with self._locks.of(name):
            if self._index.oldest() != name:
                return
            try:
                await self._writing.run(partial(path.unlink, missing_ok=True))
            except OSError as error:
                raise TierError(f"{path}: {os_reason(error)}; cannot be evicted") from error
            self._index.drop(name)
            self._stats.evicted += 1

    async def _forget(self, name: str, identity: FileIdentity | None) -> None:
        """Drop an object whose file is gone or corrupt, unless it was replaced meanwhile."""
        async with self._locks.of(name):
            try:
                gone = await self._reading.run(remove_if, self._path_of(name), identity)
            except OSError as error:
                raise TierError(f"{self._path_of(name)}: {os_reason(error)}; corrupt") from error
            if gone:
                self._index.drop(name)

    def _recover(self) -> None:
        """Make the directories, remove what a killed server left, and read what is there."""
        _make_directory(self._temporary)
        for leftover in self._temporary.iterdir():
            if _TEMPORARY_NAME.fullmatch(leftover.name):
                leftover.unlink()
        _make_directory(self._objects)
        for shard in _SHARDS:
            _make_directory(self._objects / shard)
        sync_directory(self._objects)
        sync_directory(self._objects.parent)
        found = [self._measure(path) for path in sorted(self._objects.glob("??/*"))]
        for _, name, size in sorted(entry for entry in found if entry is not None):
            self._index.put(name, size, size)
        for name, _ in self._index.evict_to(self._capacity_bytes):
            self._path_of(name).unlink()
            self._stats.evicted += 1

    def _measure(self, path: Path) -> tuple[int, str, int] | None:
        """Return age, name and size of an object; a file that is not ours is left alone.

        What the system does not let us read, for want of a right or of descriptors, may be sound.
        """
        if not NAME.fullmatch(path.name) or not path.name.startswith(path.parent.name):
            return None
        try:
            return path.lstat().st_mtime_ns, path.name, read_size(path)
        except CorruptError:
            self._stats.corrupt += 1
            path.unlink()
            return None

    def _path_of(self, name: str) -> Path:
        return self._objects / name[:_SHARD_CHARS] / name

    @contextmanager
    def _at_work(self, incoming_bytes: int = 0) -> Iterator[None]:
        """Count a read or a write, and what it will add, while it lasts."""
        self._check_open()
        self._busy += 1
        self._incoming_bytes += incoming_bytes
        try:
            yield
        finally:
            self._busy -= 1
            self._incoming_bytes -= incoming_bytes

    def _check_open(self) -> None:
        if not self._open:
            raise closed_error(self.name)


def _make_directory(path: Path) -> None:
    """Make a directory of ours if it is not there; UsageError for a link in its place."""
    path.mkdir(mode=0o700, exist_ok=True)
    if stat.S_ISLNK(path.lstat().st_mode):
        raise UsageError(
            f"L2 directory {path.parent}: {path.name} is a link, and files are deleted there; "
            "expected a directory: remove the link, or use another directory"
        )


def _lock_directory(directory: Path) -> int:
    """Take the directory's lock, which the system gives back when this process is gone."""
    # A link would be locked, or even made, where it leads; a pipe is not a lock either.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(directory / "lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(
            f"L2 directory {directory} is used by another server; stop it or use another directory"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
