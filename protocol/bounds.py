"""What a document would cost once it is decoded: looked at before it is.

A container of one byte becomes an object of 64 bytes or more, so a peer could make us allocate a
hundred times what it sends.  Here the elements that a document claims are counted, without making
any, and one that claims more than its place can need is refused.  So decoding costs at most four
times the bytes, or what the largest legal answer of that place costs; small ones are not counted.
"""

from __future__ import annotations

import re

from protocol.errors import RemoteProtocolError

SMALL_BYTES = 4096
"""A document up to here is decoded without a look: at worst, that costs 300 KB."""

FEW = 256
"""Elements of an answer that is one value, or a map of a handful; newer servers may add some."""

MAX_TOKENS = 1 << 24
"""Token ids of a key, and block ids of a table: a million-token context times sixteen."""

MAX_SLOTS = 1 << 16
"""One slot a chunk: a million tokens in chunks of sixteen, sixteen million in those of 256."""

SLOT_ELEMENTS = 16
"""A slot is a map of four, and its shape has a few numbers."""

MAX_CONTAINERS = 2 * MAX_SLOTS + FEW
"""Arrays and maps in one document: a slot is one, and has one."""

MANY_CONTAINERS = 4096
MANY_COMMAS = 8192
BYTES_OF_A_CONTAINER = 64
BYTES_OF_AN_ELEMENT = 16
"""A JSON document has so many containers and elements at most, and one more for each so many bytes:
/status of 0.5.6 has a container in 100 bytes and an element in 26."""

MAX_HEADS = 8 * MAX_SLOTS + FEW
"""Texts, bytes, arrays and maps in one document, which are looked at one by one: a slot has 7."""

_RUN = 1000
_SCALARS = re.compile(
    rb"(?:[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]+|[\xcc\xd0].|[\xcd\xd1].{2}|[\xca\xce\xd2].{4}"
    rb"|[\xcb\xcf\xd3].{8}){0,%d}" % _RUN,
    re.DOTALL,
)
"""Numbers, booleans and nils in a row, of which a long document mostly consists.

The repetition is bounded, since the expression keeps a note of each."""

_LENGTH_BYTES = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip
"""How wide the length behind a head of msgpack is."""

_FIXED_BYTES = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
"""What follows the head of an extension of a fixed size."""

_ARRAYS, _MAPS, _EXTENSIONS = {0xDC, 0xDD}, {0xDE, 0xDF}, {0xC7, 0xC8, 0xC9}


def check_msgpack(document: bytes | memoryview, place: str, elements: int = FEW) -> None:
    """Refuse a document of msgpack that claims more than so many elements.

    Raises RemoteProtocolError.  One that is not msgpack may pass: decoding tells, and stops
    where it is wrong.
    """
    if len(document) <= SMALL_BYTES:
        return
    claimed, heads, containers, position = 1, 0, 0, 0
    while position < len(document) and heads < claimed:
        scalars = _SCALARS.match(document, position)
        if scalars and scalars.end() > position:
            position = scalars.end()
            continue
        head, count, is_container = _head_at(document, position)
        heads += 1
        if is_container:
            claimed, containers, count = claimed + count, containers + 1, 0
        position += head + count
        if claimed > elements or heads > MAX_HEADS or containers > MAX_CONTAINERS:
            raise RemoteProtocolError(
                f"{place}: {len(document)} bytes claim {claimed} or more elements, expected at "
                f"most {elements}, {MAX_CONTAINERS} of them arrays and maps"
            )
    if claimed > len(document):
        raise RemoteProtocolError(
            f"{place}: {len(document)} bytes claim {claimed} elements, which need a byte each"
        )


def _head_at(document: bytes | memoryview, at: int) -> tuple[int, int, bool]:
    """Return the bytes of a head, what it announces, and whether that are elements, not bytes."""
    head = document[at]
    if head in _LENGTH_BYTES:
        width = _LENGTH_BYTES[head]
        count = int.from_bytes(document[at + 1 : at + 1 + width], "big")
        if head in _ARRAYS or head in _MAPS:
            return 1 + width, 2 * count if head in _MAPS else count, True
        return 1 + width + (head in _EXTENSIONS), count, False
    if 0x80 <= head <= 0x8F:
        return 1, 2 * (head & 0x0F), True
    if 0x90 <= head <= 0x9F:
        return 1, head & 0x0F, True
    if 0xA0 <= head <= 0xBF:
        return 1, head & 0x1F, False
    # Otherwise it is cut off, or nothing that msgpack knows.
    return 1, _FIXED_BYTES.get(head, 0), False


def check_json(document: bytes, place: str) -> None:
    """Refuse JSON that is mostly brackets or commas, as no answer or request is.

    Raises RemoteProtocolError.  Brackets and commas inside texts count too.
    """
    containers = document.count(b"[") + document.count(b"{")
    commas = document.count(b",")
    most = MANY_CONTAINERS + len(document) // BYTES_OF_A_CONTAINER
    if containers > most or commas > MANY_COMMAS + len(document) // BYTES_OF_AN_ELEMENT:
        raise RemoteProtocolError(
            f"{place}: {len(document)} bytes of JSON with {containers} brackets and {commas} "
            "commas, more than any answer has"
        )
