"""One object in one file, as `framing` has it: read, measured, and written all or nothing.

A file appears under its name whole and synced, or not at all.  Everything here blocks and runs in
threads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchserver.refserver.tiers.framing import (
    FIXED_BYTES,
    MAX_KEY_BYTES,
    FrameError,
    check_header,
    check_payload,
    header_bytes,
    header_of,
    key_size_in,
)
from benchserver.refserver.tiers.keyname import name_of
from benchserver.refserver.tiers.tier import check_size

_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not blocking: opening a pipe that lies there must not wait for its other end."""

_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file a name stood for when it was opened."""

    device: int
    inode: int


class CorruptError(Exception):
    """A file is not what was written under its name."""

    def __init__(self, reason: str, identity: FileIdentity) -> None:
        super().__init__(reason)
        self.identity = identity


class Submitted(Enum):
    """What a write has done to the name that it writes to."""

    UNTOUCHED = "what was there before is there"
    LANDED = "the new file is there"
    LOST = "neither is there"


@dataclass(slots=True, kw_only=True)
class NewFile:
    """A file to write: its final path, and one in the same file system until it is whole."""

    path: Path
    temporary: Path
    submitted: Submitted = Submitted.UNTOUCHED


def write_object(new: NewFile, encoded_key: bytes, data: memoryview) -> None:
    """Write, sync, rename, sync; raises OSError, and leaves nothing new then."""
    header = header_of(encoded_key, data)
    try:
        descriptor = os.open(new.temporary, _WRITE_FLAGS, 0o600)
        try:
            _write_all(descriptor, [memoryview(header), data])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(new.temporary, new.path)
        new.submitted = Submitted.LOST
        sync_directory(new.path.parent)
        new.submitted = Submitted.LANDED
    finally:
        if new.submitted is not Submitted.LANDED:
            renamed = new.submitted is Submitted.LOST
            with suppress(OSError):
                os.unlink(new.path if renamed else new.temporary)


def read_object(path: Path, encoded_key: bytes, out: memoryview) -> None:
    """Fill `out` with the payload.

    Raises CorruptError, OSError (FileNotFoundError: there is none), or TierError for a sound
    header of an object of another size.
    """
    descriptor = _opened(path)
    try:
        status, identity = _checked_file(descriptor)
        header = bytearray(header_bytes(encoded_key))
        if _read_all(descriptor, [memoryview(header), out]) < len(header):
            raise CorruptError("the header is cut off", identity)
        digest, payload_bytes = _check_header(header, encoded_key, identity)
        if status.st_size != len(header) + payload_bytes:
            raise CorruptError(
                f"{status.st_size} bytes, the header says {len(header) + payload_bytes}", identity
            )
        check_size(payload_bytes, out)
    finally:
        os.close(descriptor)
    try:
        check_payload(out, digest)
    except FrameError as error:
        raise CorruptError(str(error), identity) from error


def read_size(path: Path) -> int:
    """Return a file's size if its header fits its name and its size; raises as `read_object`."""
    descriptor = _opened(path)
    try:
        status, identity = _checked_file(descriptor)
        fixed = os.pread(descriptor, FIXED_BYTES, 0)
        if len(fixed) < FIXED_BYTES:
            raise CorruptError("the header is cut off", identity)
        key_size = min(key_size_in(fixed), MAX_KEY_BYTES)
        encoded_key = os.pread(descriptor, key_size, FIXED_BYTES)
    finally:
        os.close(descriptor)
    _, payload_bytes = _check_header(fixed + encoded_key, encoded_key, identity)
    if name_of(encoded_key) != path.name:
        raise CorruptError("another object's file", identity)
    if status.st_size != header_bytes(encoded_key) + payload_bytes:
        raise CorruptError("its size is not what the header says", identity)
    return status.st_size


def remove_if(path: Path, identity: FileIdentity | None) -> bool:
    """Remove a file if it is that very one; tell whether nothing has its name now."""
    try:
        status = os.lstat(path)
        if FileIdentity(status.st_dev, status.st_ino) != identity:
            return False
        os.unlink(path)
    except FileNotFoundError:
        pass
    return True


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlast a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Return a descriptor of an object's file; CorruptError for what nobody can read as one."""
    try:
        return os.open(path, _READ_FLAGS)
    except OSError as error:
        # A link, a socket, or a device that is not there: what stands for a file and is not one.
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise
        status = os.lstat(path)
        identity = FileIdentity(status.st_dev, status.st_ino)
        raise CorruptError("not a regular file", identity) from error


def _checked_file(descriptor: int) -> tuple[os.stat_result, FileIdentity]:
    """Return what an open file is; CorruptError for a pipe, a directory or a device."""
    status = os.fstat(descriptor)
    identity = FileIdentity(status.st_dev, status.st_ino)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptError("not a regular file", identity)
    return status, identity


def _check_header(
    header: bytes | bytearray, encoded_key: bytes, identity: FileIdentity
) -> tuple[bytes, int]:
    """Return the digest and the length that a header gives, if all else is as it must be."""
    try:
        return check_header(header, encoded_key)
    except FrameError as error:
        raise CorruptError(str(error), identity) from error


def _write_all(descriptor: int, parts: Sequence[memoryview]) -> None:
    """Write every byte of the parts; the system may take fewer at a time."""
    for part in parts:
        done = 0
        while done < part.nbytes:
            done += os.write(descriptor, part[done:])


def _read_all(descriptor: int, parts: Sequence[memoryview]) -> int:
    """Fill the parts one after the other as far as the file goes; return how many bytes came."""
    total = 0
    for part in parts:
        done = 0
        while done < part.nbytes:
            count = os.readv(descriptor, [part[done:]])
            if not count:
                return total + done
            done += count
        total += done
    return total
