"""Tensor descriptors: literal bytes both ways, and every refusal with its words."""

import re
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.handles import (
    CPU_EVENT_STUB,
    CpuShmHandle,
    contiguous_strides,
    handle_from_wire,
    handle_to_wire,
)

HANDLE = CpuShmHandle(
    shm_name="/kv", nbytes=256, dtype="float16", shape=(2, 4, 16), stride=(64, 16, 1)
)
BODY = (
    b"\x85"
    b"\xa4type\xa7cpu_shm"
    b"\xa8shm_name\xa3/kv"
    b"\xa6nbytes\xcd\x01\x00"
    b"\xa7version\x01"
    b"\xa8metadata\x85"
    b"\xa5dtype\xa7float16"
    b"\xa5shape\x93\x02\x04\x10"
    b"\xa6stride\x93\x40\x10\x01"
    b"\xaestorage_offset\x00"
    b"\xabdevice_uuid\xa3cpu"
)


def test_the_event_stub_is_the_stock_constant() -> None:
    assert CPU_EVENT_STUB == b"stub_ipc_handle"


def test_a_descriptor_is_a_map_in_an_extension_of_type_1() -> None:
    assert handle_to_wire(HANDLE) == msgpack.ExtType(1, BODY)


def test_an_extension_of_type_1_is_read() -> None:
    assert handle_from_wire(msgpack.ExtType(1, BODY)) == HANDLE


def test_every_field_is_carried() -> None:
    handle = CpuShmHandle(
        shm_name="x",
        nbytes=1 << 40,
        dtype="bfloat16",
        shape=(3, 5, 1, 1, 1, 1, 1, 2),
        stride=(7, 2, 1, 1, 1, 1, 1, 1),
        storage_offset=9,
        device_uuid="u",
    )
    assert handle_from_wire(handle_to_wire(handle)) == handle


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((), ()),
        ((5,), (1,)),
        ((64, 16, 16), (256, 16, 1)),
        ((2, 64, 16, 2, 8), (16384, 256, 16, 8, 1)),
        ((2, 0, 3), (0, 3, 1)),
    ],
)
def test_contiguous_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == strides


@pytest.mark.parametrize(
    ("change", "span_bytes"),
    [
        ({}, 256),
        ({"storage_offset": 8}, 272),
        ({"dtype": "float32"}, 512),
        ({"dtype": "bfloat16"}, 256),
        ({"dtype": "uint8"}, 128),
        ({"dtype": "int8"}, 128),
        ({"shape": (), "stride": ()}, 2),
        ({"shape": (2, 0, 16)}, 0),
        ({"stride": (0, 0, 1)}, 32),
        ({"stride": (64, 32, 1)}, 2 * (64 + 96 + 15 + 1)),
    ],
)
def test_the_span_reaches_from_the_start_of_the_segment(
    change: dict[str, Any], span_bytes: int
) -> None:
    assert replace(HANDLE, **change).span_bytes() == span_bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "float64"}, "handle: dtype 'float64' is not known"),
        ({"nbytes": 255}, "handle: the tensor spans 256 bytes of /kv, which has 255"),
        ({"storage_offset": 1}, "handle: the tensor spans 258 bytes of /kv, which has 256"),
        (
            {"stride": (16, 1)},
            "handle: shape (2, 4, 16) and stride (16, 1) differ in rank",
        ),
    ],
)
def test_descriptors_that_are_not_sent(change: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        handle_to_wire(replace(HANDLE, **change))
    assert str(caught.value) == words


def descriptor(**changes: Any) -> msgpack.ExtType:
    body: dict[str, Any] = msgpack.unpackb(BODY)
    for name, value in changes.items():
        holder = body if name in body else body["metadata"]
        holder[name] = value
    return msgpack.ExtType(1, msgpack.packb(body))


NO_VERSION_1 = "expected cpu_shm version 1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "cuda"}, f"handle: type 'cuda' version 1, {NO_VERSION_1}"),
        ({"type": None}, f"handle: type None version 1, {NO_VERSION_1}"),
        ({"version": 2}, f"handle: type 'cpu_shm' version 2, {NO_VERSION_1}"),
        ({"version": True}, f"handle: type 'cpu_shm' version True, {NO_VERSION_1}"),
        ({"version": 1.0}, f"handle: type 'cpu_shm' version 1.0, {NO_VERSION_1}"),
        ({"version": "1"}, f"handle: type 'cpu_shm' version '1', {NO_VERSION_1}"),
        ({"shm_name": b"/kv"}, "handle: shm_name and device_uuid must be strings"),
        ({"device_uuid": 0}, "handle: shm_name and device_uuid must be strings"),
        ({"dtype": "float64"}, "handle: dtype 'float64' is not known"),
        ({"dtype": ["float16"]}, "handle: dtype ['float16'] is not known"),
        ({"nbytes": -1}, "handle: nbytes is -1, expected 0 or more"),
        ({"nbytes": True}, "handle: nbytes is True, expected 0 or more"),
        ({"nbytes": 256.0}, "handle: nbytes is 256.0, expected 0 or more"),
        ({"storage_offset": None}, "handle: storage_offset is None, expected 0 or more"),
        ({"shape": [2, -4, 16]}, "handle: shape is -4, expected 0 or more"),
        ({"shape": 5}, "handle: shape is 5, expected an array"),
        ({"shape": [1] * 9}, "handle: shape is [1, 1, 1, 1, 1, 1, 1, 1, 1], expected an array"),
        ({"stride": [64, "16", 1]}, "handle: stride is '16', expected 0 or more"),
        ({"stride": [16, 1]}, "handle: shape and stride differ in rank"),
        ({"nbytes": 255}, "handle: the tensor spans 256 bytes of 255"),
        ({"storage_offset": 1}, "handle: the tensor spans 258 bytes of 256"),
        ({"metadata": []}, "handle.metadata: expected a map of exactly"),
    ],
)
def test_descriptors_that_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(words)):
        handle_from_wire(descriptor(**changes))


@pytest.mark.parametrize("place", ["body", "metadata"])
@pytest.mark.parametrize("how", ["missing", "unknown"])
def test_a_descriptor_has_exactly_its_fields(place: str, how: str) -> None:
    body: dict[str, Any] = msgpack.unpackb(BODY)
    holder = body if place == "body" else body["metadata"]
    if how == "missing":
        del holder[next(iter(holder))]
    else:
        holder["extra"] = 1
    with pytest.raises(RemoteProtocolError, match="expected a map of exactly"):
        handle_from_wire(msgpack.ExtType(1, msgpack.packb(body)))


@pytest.mark.parametrize(
    "value", [None, 1, "x", BODY, [BODY], {}, msgpack.ExtType(2, BODY), msgpack.Timestamp(0)]
)
def test_what_is_no_extension_of_type_1(value: Any) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^handle: expected an extension of type 1$"):
        handle_from_wire(value)


@pytest.mark.parametrize("data", [b"", BODY[:-1], BODY + b"\x00", b"\xc1", b"\x80\x04\x95N."])
def test_an_extension_that_is_not_one_document(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^handle: not msgpack \(\w+\)$"):
        handle_from_wire(msgpack.ExtType(1, data))


def test_a_field_that_nests_deeper_than_the_stack() -> None:
    deep = b"\x91" * 1000 + b"\xc0"
    data = BODY.replace(b"\xa7cpu_shm", deep)
    with pytest.raises(RemoteProtocolError, match="type a list that nests too deep to show"):
        handle_from_wire(msgpack.ExtType(1, data))
