"""Tensor descriptors: literal bytes both ways, and every refusal with its words."""

import re
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.handles import (
    CPU_EVENT_STUB,
    EVENT_HANDLE_BYTES,
    MAX_SHARE_BYTES,
    CpuShmHandle,
    CudaHandle,
    CudaRawHandle,
    KvHandle,
    contiguous_strides,
    handle_from_wire,
    handle_to_wire,
    pickled_handle_to_wire,
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
        ({"dtype": "float8_e4m3fn"}, 128),
        ({"dtype": "float8_e5m2"}, 128),
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


NO_VERSION_1 = "expected cpu_shm, cuda, cuda_raw version 1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "cuda"}, "handle: expected a map of exactly ['handle', 'metadata', 'type', "),
        ({"type": "cuda_raw"}, "handle: expected a map of exactly ['alloc_offset', 'ipc_handle', "),
        ({"type": "cuda_vmm"}, f"handle: type 'cuda_vmm' version 1, {NO_VERSION_1}"),
        ({"type": None}, f"handle: type None version 1, {NO_VERSION_1}"),
        ({"version": 2}, f"handle: type 'cpu_shm' version 2, {NO_VERSION_1}"),
        ({"version": True}, f"handle: type 'cpu_shm' version True, {NO_VERSION_1}"),
        ({"version": 1.0}, f"handle: type 'cpu_shm' version 1.0, {NO_VERSION_1}"),
        ({"version": "1"}, f"handle: type 'cpu_shm' version '1', {NO_VERSION_1}"),
        ({"shm_name": b"/kv"}, "handle: shm_name must be a string"),
        ({"device_uuid": 0}, "handle: device_uuid must be a string"),
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
        del holder[next(name for name in holder if name != "type")]
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
    with pytest.raises(RemoteProtocolError, match=rf"type {re.escape('[' * 57)}\.\.\. version"):
        handle_from_wire(msgpack.ExtType(1, data))


@pytest.mark.parametrize("value", [[], {}, {"type": "cpu_shm"}, {"version": 1}, None, 7])
def test_a_document_that_is_no_map_with_type_and_version(value: Any) -> None:
    words = r"^handle: expected a map with type and version$"
    with pytest.raises(RemoteProtocolError, match=words):
        handle_from_wire(msgpack.ExtType(1, msgpack.packb(value)))


UUID = "6f4e1a50-93f5-8d1c-0b57-f0b0c8e2a9d1"
CUDA = CudaHandle(
    share=(1, b"\x00m", 1024, 512, b"r", 0, b"e" * 64, True),
    dtype="bfloat16",
    shape=(2, 4, 16),
    stride=(64, 16, 1),
    storage_offset=384,
    device_uuid=UUID,
)
CUDA_METADATA = (
    b"\xa8metadata\x85"
    b"\xa5dtype\xa8bfloat16"
    b"\xa5shape\x93\x02\x04\x10"
    b"\xa6stride\x93\x40\x10\x01"
    b"\xaestorage_offset\xcd\x01\x80"
    b"\xabdevice_uuid\xd9\x24" + UUID.encode()
)
CUDA_BODY = (
    b"\x84"
    b"\xa4type\xa4cuda"
    b"\xa6handle\x98\x01\xc4\x02\x00m\xcd\x04\x00\xcd\x02\x00\xc4\x01r\x00\xc4\x40"
    + b"e" * 64
    + b"\xc3"
    + b"\xa7version\x01"
    + CUDA_METADATA
)
RAW = CudaRawHandle(
    ipc_handle=bytes(range(64)),
    alloc_offset=4096,
    nbytes=256,
    dtype="float16",
    shape=(2, 4, 16),
    stride=(64, 16, 1),
    device_uuid=UUID,
)
RAW_BODY = (
    b"\x86"
    b"\xa4type\xa8cuda_raw"
    b"\xaaipc_handle\xc4\x40" + bytes(range(64)) + b"\xacalloc_offset\xcd\x10\x00"
    b"\xa6nbytes\xcd\x01\x00"
    b"\xa7version\x01"
    + CUDA_METADATA.replace(b"\xa8bfloat16", b"\xa7float16").replace(b"\xcd\x01\x80", b"\x00")
)


def test_an_event_handle_has_64_bytes() -> None:
    assert EVENT_HANDLE_BYTES == 64


@pytest.mark.parametrize(("handle", "body"), [(CUDA, CUDA_BODY), (RAW, RAW_BODY)])
def test_cuda_descriptors_are_maps_too(handle: KvHandle, body: bytes) -> None:
    assert handle_to_wire(handle) == msgpack.ExtType(1, body)
    assert handle_from_wire(msgpack.ExtType(1, body)) == handle


def test_what_torch_may_leave_out_of_a_share() -> None:
    handle = replace(CUDA, share=(-1, None, 1024, 0, None, 0, None, False))
    assert handle_from_wire(handle_to_wire(handle)) == handle


def test_the_span_of_a_cuda_tensor_counts_from_the_start_of_its_storage() -> None:
    assert (CUDA.nbytes, CUDA.span_bytes()) == (1024, 2 * (384 + 128))
    assert RAW.span_bytes() == RAW.nbytes == 256


def test_an_axis_of_one_element_may_have_any_stride() -> None:
    handle = replace(RAW, shape=(2, 1, 64), stride=(64, 999, 1))
    assert handle_from_wire(handle_to_wire(handle)) == handle


def changed(handle: KvHandle, /, **changes: Any) -> msgpack.ExtType:
    """Return a descriptor as it is on the wire, with other values in it."""
    body: dict[str, Any] = msgpack.unpackb(CUDA_BODY if handle is CUDA else RAW_BODY)
    for name, value in changes.items():
        holder = body if name in body else body["metadata"]
        holder[name] = value
    return msgpack.ExtType(1, msgpack.packb(body))


def share(**changes: Any) -> list[Any]:
    """Return the share of `CUDA` with some elements replaced: `_0=1` is element 0."""
    values: list[Any] = list(CUDA.share)
    for name, value in changes.items():
        values[int(name[1:])] = value
    return values


TOO_LONG = bytes(MAX_SHARE_BYTES + 1)
NOT_RAW = "cuda_raw takes a contiguous tensor at offset 0 that has exactly its bytes"


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (changed(CUDA, version=2), f"handle: type 'cuda' version 2, {NO_VERSION_1}"),
        (changed(RAW, version=True), f"handle: type 'cuda_raw' version True, {NO_VERSION_1}"),
        (changed(CUDA, handle=share()[:7]), "expected an array of 8"),
        (changed(CUDA, handle=[*share(), 0]), "expected an array of 8"),
        (changed(CUDA, handle={}), "handle: handle is {}, expected an array of 8"),
        (changed(CUDA, handle=share(_0=True)), "handle[0] must be an integer, handle[7] a bool"),
        (changed(CUDA, handle=share(_0=None)), "handle[0] must be an integer, handle[7] a bool"),
        (changed(CUDA, handle=share(_7=1)), "handle[0] must be an integer, handle[7] a bool"),
        (changed(CUDA, handle=share(_1="m")), "handle: handle[1] is 'm', expected nil or at most"),
        (changed(CUDA, handle=share(_1=TOO_LONG)), "expected nil or at most 256 bytes"),
        (changed(CUDA, handle=share(_4=TOO_LONG)), "expected nil or at most 256 bytes"),
        (changed(CUDA, handle=share(_6=5)), "handle: handle[6] is 5, expected nil or at most"),
        (changed(CUDA, handle=share(_2=-1)), "handle: handle[2] is -1, expected 0 or more"),
        (changed(CUDA, handle=share(_3=1.0)), "handle: handle[3] is 1.0, expected 0 or more"),
        (changed(CUDA, handle=share(_5=None)), "handle: handle[5] is None, expected 0 or more"),
        (changed(CUDA, handle=share(_2=1023)), "handle: the tensor spans 1024 bytes of 1023"),
        (changed(CUDA, storage_offset=385), "handle: the tensor spans 1026 bytes of 1024"),
        (changed(CUDA, device_uuid=b"u"), "handle: device_uuid must be a string"),
        (changed(CUDA, stride=[1]), "handle: shape and stride differ in rank"),
        (changed(RAW, ipc_handle=bytes(63)), "expected 64 bytes"),
        (changed(RAW, ipc_handle=bytes(65)), "expected 64 bytes"),
        (changed(RAW, ipc_handle="x" * 64), "expected 64 bytes"),
        (changed(RAW, ipc_handle=None), "handle: ipc_handle is None, expected 64 bytes"),
        (changed(RAW, alloc_offset=-1), "handle: alloc_offset is -1, expected 0 or more"),
        (changed(RAW, alloc_offset=True), "handle: alloc_offset is True, expected 0 or more"),
        (changed(RAW, nbytes=255), NOT_RAW),
        (changed(RAW, nbytes=257), NOT_RAW),
        (changed(RAW, storage_offset=1), NOT_RAW),
        (changed(RAW, stride=[16, 32, 1]), NOT_RAW),
        (changed(RAW, metadata={}), "handle.metadata: expected a map of exactly"),
    ],
)
def test_cuda_descriptors_that_are_refused(wire: msgpack.ExtType, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(words)):
        handle_from_wire(wire)


@pytest.mark.parametrize("body", [CUDA_BODY, RAW_BODY])
def test_a_cuda_descriptor_has_exactly_its_fields(body: bytes) -> None:
    whole: dict[str, Any] = msgpack.unpackb(body)
    for name in whole.keys() - {"type", "version"}:
        less = {field: value for field, value in whole.items() if field != name}
        for wrong in (less, {**whole, "extra": 1}, {**less, "shm_name": "x"}):
            with pytest.raises(RemoteProtocolError, match="expected a map of exactly"):
                handle_from_wire(msgpack.ExtType(1, msgpack.packb(wrong)))


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (replace(CUDA, dtype="float64"), "handle: dtype 'float64' is not known"),
        (replace(CUDA, storage_offset=385), "handle: the tensor spans 1026 bytes of 1024"),
        (
            replace(CUDA, share=(0, TOO_LONG, 1024, 0, b"r", 0, b"e", True)),
            "expected nil or at most 256 bytes",
        ),
        (replace(RAW, ipc_handle=b""), "handle: ipc_handle is b'', expected 64 bytes"),
        (replace(RAW, nbytes=300), NOT_RAW),
        (replace(RAW, storage_offset=8), NOT_RAW),
    ],
)
def test_cuda_descriptors_that_are_not_sent(handle: KvHandle, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape(words)):
        handle_to_wire(handle)


@pytest.mark.parametrize(("handle", "tag"), [(CUDA, "cuda"), (RAW, "cuda_raw")])
def test_the_pickle_generation_is_sent_no_cuda_descriptor(handle: KvHandle, tag: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"a {tag} descriptor cannot be sent"):
        pickled_handle_to_wire(handle)
