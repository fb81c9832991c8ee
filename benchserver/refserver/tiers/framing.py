"""One object as bytes outside this process: a header that proves whose bytes follow, and the bytes.

    magic 8 | version 4 | length of the key 4 | length of the payload 8 | digest 32 | key | payload

The digest is SHA-256 of the payload: with the instructions that current processors have for it,
the fastest of the standard library.  Magic, version, key and lengths are compared with what they
must be, so no byte changes unnoticed.
"""

from __future__ import annotations

import hashlib
import struct

FORMAT_VERSION = 1
MAX_KEY_BYTES = 1 << 16
"""Model names and salts are short; a longer key in a header is damage."""

FIXED_BYTES = 56
"""What precedes the key."""

_FIXED = struct.Struct(">8sIIQ32s")
_MAGIC = b"BSTIER\r\n"


class FrameError(Exception):
    """These bytes are not what was written under that key; one line without the place."""


def header_bytes(encoded_key: bytes) -> int:
    """Return how many bytes precede the payload."""
    return FIXED_BYTES + len(encoded_key)


def header_of(encoded_key: bytes, data: memoryview) -> bytes:
    """Return what precedes a payload; reads all of it."""
    digest = hashlib.sha256(data).digest()
    fixed = _FIXED.pack(_MAGIC, FORMAT_VERSION, len(encoded_key), data.nbytes, digest)
    return fixed + encoded_key


def key_size_in(fixed: bytes) -> int:
    """Return how long the key is, as the first FIXED_BYTES bytes of a header say."""
    size: int = _FIXED.unpack(fixed)[2]
    return size


def check_header(header: bytes | bytearray, encoded_key: bytes) -> tuple[bytes, int]:
    """Return the digest and the length that a header gives; raise FrameError if all is not well."""
    magic, version, key_size, payload_bytes, digest = _FIXED.unpack_from(header)
    key_there = bytes(header[FIXED_BYTES : FIXED_BYTES + key_size])
    if (magic, version) != (_MAGIC, FORMAT_VERSION):
        raise FrameError("not one of our objects")
    if key_size != len(encoded_key) or key_there != encoded_key:
        raise FrameError("another object's bytes")
    return digest, payload_bytes


def check_payload(payload: memoryview, digest: bytes) -> None:
    """Raise FrameError unless this is the payload that the header speaks of."""
    if hashlib.sha256(payload).digest() != digest:
        raise FrameError("the payload is not what was written")
