"""An object's name outside this process: bytes that hold every field of its key, and their hash."""

from __future__ import annotations

import hashlib
import re
import struct

from benchserver.refserver.objectkey import ObjectKey

NAME_BYTES = 16
NAME = re.compile(rf"[0-9a-f]{{{2 * NAME_BYTES}}}")

_LENGTH = struct.Struct(">I")


def key_bytes(key: ObjectKey) -> bytes:
    """Return all fields of a key, each after its length; no two keys have the same bytes."""
    fields = (
        key.chunk_hash,
        key.model_name.encode("utf-8", "surrogatepass"),
        b"%d" % key.world_size,
        b"%d" % key.rank,
        key.salt.encode("utf-8", "surrogatepass"),
        b"%d" % key.group,
    )
    return b"".join(_LENGTH.pack(len(field)) + field for field in fields)


def name_of(encoded: bytes) -> str:
    """Return the name of an object whose `key_bytes` these are: hexadecimal, fit for a file."""
    return hashlib.blake2b(encoded, digest_size=NAME_BYTES).hexdigest()
