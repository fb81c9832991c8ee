"""Streams of inline tensors: those of the real peer, and one put together byte by byte."""

from __future__ import annotations

import json
import pickletools
from pathlib import Path
from typing import Any

import msgpack
import pytest

from protocol.errors import RemoteProtocolError
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor

GOLDEN = Path(__file__).parents[2] / "golden"


NEWER = ("float8_e4m3fn", "float8_e5m2")


WIDTHS = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "uint8": 1,
    "int8": 1,
    **dict.fromkeys(NEWER, 1),
}


# One int8 tensor of shape (3,), byte by byte.
MAGIC_PICKLE = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


VERSION_PICKLE = b"\x80\x02M\xe9\x03."


SENDER_PICKLE = (
    b"\x80\x02}("
    b"X\x10\x00\x00\x00protocol_versionM\xe9\x03"
    b"X\x0d\x00\x00\x00little_endian\x88"
    b"X\x0a\x00\x00\x00type_sizes}("
    b"X\x05\x00\x00\x00shortK\x02X\x03\x00\x00\x00intK\x04X\x04\x00\x00\x00longK\x04uu."
)


STORAGE_PICKLE = (
    b"\x80\x02("
    b"X\x07\x00\x00\x00storagectorch\nCharStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x03NtQ."
)


KEYS_PICKLE = b"\x80\x02]X\x01\x00\x00\x000a."


BLOB_PARTS = (
    MAGIC_PICKLE,
    VERSION_PICKLE,
    SENDER_PICKLE,
    STORAGE_PICKLE,
    KEYS_PICKLE,
    b"\x03\x00\x00\x00\x00\x00\x00\x00",
    b"\x01\x7f\xff",
)


BLOB = b"".join(BLOB_PARTS)


REBUILD = b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93\x94"


LOAD = b"\x8c\x0dtorch.storage\x8c\x10_load_from_bytes\x93\x94"


HOOKS = b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93\x94"


THREE = b"(K\x03t(K\x01t"


def storage_of(blob: bytes = BLOB) -> bytes:
    return LOAD + b"B" + len(blob).to_bytes(4, "little") + blob + b"\x85R"


def tensor_of(
    storage: bytes | None = None,
    offset: bytes = b"K\x00",
    view: bytes = THREE,
    grad: bytes = b"\x89",
    hooks: bytes = HOOKS + b")R",
) -> bytes:
    storage = storage_of() if storage is None else storage
    return REBUILD + b"(" + storage + offset + view + grad + hooks + b"tR"


def listed(*items: bytes) -> bytes:
    return b"\x80\x04](" + b"".join(items) + b"e."


SMALL_STREAM = listed(tensor_of())


SMALL = InlineTensor("int8", (3,), b"\x01\x7f\xff")


def refused(stream: bytes, match: str = "inline tensor list") -> None:
    with pytest.raises(RemoteProtocolError, match=match):
        decode_tensor_list(stream)


def list_or_refusal(stream: bytes) -> None:
    try:
        decoded = decode_tensor_list(stream)
    except RemoteProtocolError:
        return
    assert isinstance(decoded, list)
    assert all(isinstance(tensor, InlineTensor) for tensor in decoded)


def recorded(name: str, op: str, direction: str) -> list[Any]:
    messages = json.loads((GOLDEN / f"v056_engine_driven_pickle_{name}.json").read_text())
    return [
        msgpack.unpackb(bytes.fromhex(message["frames"][-1]))
        for message in messages
        if message["op"] == op and message["direction"] == direction
    ]


def stored_streams(name: str) -> list[bytes]:
    return recorded(name, "commit_store", "request")


def retrieved_streams(name: str) -> list[bytes]:
    return [reply["data"] for reply in recorded(name, "prepare_retrieve", "response")]


def blobs_in(stream: bytes) -> list[bytes]:
    return [arg for _, arg, _ in pickletools.genops(stream) if isinstance(arg, bytes)]


GOLDEN_STREAM = stored_streams("single_group")[0]


# pickle.dumps of torch 2.13.0: [a, b] with the bytes of a, an e4m3fn, counting up in a storage of
# (4, 6) of which [1:, ::2] is shown, and b, two e5m2.
NEWER_STREAM = bytes.fromhex(
    "80049502030000000000005d94288c0c746f7263682e5f7574696c73948c125f72656275696c645f74656e73"
    "6f725f7633949394288c0d746f7263682e73746f72616765948c105f6c6f61645f66726f6d5f627974657394"
    "9394421d01000080028a0a6cfc9c46f9206aa850192e80024de9032e80027d710028581000000070726f746f"
    "636f6c5f76657273696f6e71014de903580d0000006c6974746c655f656e6469616e710288580a0000007479"
    "70655f73697a657371037d710428580500000073686f727471054b025803000000696e7471064b0458040000"
    "006c6f6e6771074b0475752e800228580700000073746f72616765710063746f7263682e73746f726167650a"
    "556e747970656453746f726167650a7101580e00000039343535313730343839343330347102580300000063"
    "707571034b184e747104512e80025d7100580e00000039343535313730343839343330347101612e18000000"
    "00000000000102030405060708090a0b0c0d0e0f101112131415161794859452944b064b034b0386944b064b"
    "028694898c0b636f6c6c656374696f6e73948c0b4f726465726564446963749493942952948c05746f726368"
    "948c0d666c6f6174385f65346d33666e949394749452946803286806420701000080028a0a6cfc9c46f9206a"
    "a850192e80024de9032e80027d710028581000000070726f746f636f6c5f76657273696f6e71014de903580d"
    "0000006c6974746c655f656e6469616e710288580a000000747970655f73697a657371037d71042858050000"
    "0073686f727471054b025803000000696e7471064b0458040000006c6f6e6771074b0475752e800228580700"
    "000073746f72616765710063746f7263682e73746f726167650a556e747970656453746f726167650a710158"
    "0e00000039343535313631363835383834387102580300000063707571034b024e747104512e80025d710058"
    "0e00000039343535313631363835383834387101612e0200000000000000017b94859452944b004b0285944b"
    "01859489680e29529468108c0b666c6f6174385f65356d3294939474945294652e"
)


def numel(shape: tuple[int, ...]) -> int:
    numel = 1
    for size in shape:
        numel *= size
    return numel


def shorts(count: int) -> bytes:
    return b"".join(value.to_bytes(2, "little") for value in range(count))


def half_blob(count: int) -> bytes:
    storage = STORAGE_PICKLE.replace(b"CharStorage", b"HalfStorage")
    storage = storage.replace(b"K\x03N", b"M" + count.to_bytes(2, "little") + b"N")
    return b"".join(BLOB_PARTS[:3]) + storage + KEYS_PICKLE + count.to_bytes(8, "little")


def ints(*values: int) -> bytes:
    return b"(" + b"".join(b"J" + v.to_bytes(4, "little", signed=True) for v in values) + b"t"


def strided(offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A view of a float16 storage whose element i is the integer i."""
    storage = storage_of(half_blob(24) + shorts(24))
    return tensor_of(storage, b"K" + bytes([offset]), ints(*shape) + ints(*stride))
