"""What precedes a payload outside this process: byte for byte, and nothing of it may change."""

from __future__ import annotations

import hashlib

import pytest

from benchserver.refserver.tiers.framing import (
    FIXED_BYTES,
    FrameError,
    check_header,
    check_payload,
    header_bytes,
    header_of,
    key_size_in,
)

KEY, PAYLOAD = b"a key", memoryview(b"the payload")
DIGEST = hashlib.sha256(PAYLOAD).digest()
HEADER = (
    b"BSTIER\r\n"  # magic
    b"\0\0\0\x01"  # version
    b"\0\0\0\x05"  # bytes of the key
    b"\0\0\0\0\0\0\0\x0b" + DIGEST + KEY  # bytes of the payload
)


def test_a_header_is_these_bytes() -> None:
    """Files of an older server are read again: written down by hand."""
    assert header_of(KEY, PAYLOAD) == HEADER
    assert header_bytes(KEY) == len(HEADER) == FIXED_BYTES + len(KEY)
    assert key_size_in(HEADER[:FIXED_BYTES]) == len(KEY)
    assert check_header(HEADER, KEY) == (DIGEST, len(PAYLOAD))
    assert check_header(bytearray(HEADER) + PAYLOAD, KEY) == (DIGEST, len(PAYLOAD))


@pytest.mark.parametrize("position", [*range(16), *range(FIXED_BYTES, len(HEADER))])
def test_a_changed_byte_of_magic_version_and_key_is_noticed(position: int) -> None:
    damaged = bytearray(HEADER)
    damaged[position] ^= 1
    with pytest.raises(FrameError, match=r"^(not one of our objects|another object's bytes)$"):
        check_header(damaged, KEY)


def test_another_keys_header_is_another_objects() -> None:
    for other in (b"b key", b"a ke", b"a key2", b""):
        with pytest.raises(FrameError, match=r"^another object's bytes$"):
            check_header(HEADER, other)


def test_a_changed_payload_is_noticed() -> None:
    check_payload(PAYLOAD, DIGEST)
    for wrong in (b"The payload", b"the payloa", b"the payload\0", b""):
        with pytest.raises(FrameError, match=r"^the payload is not what was written$"):
            check_payload(memoryview(wrong), DIGEST)
