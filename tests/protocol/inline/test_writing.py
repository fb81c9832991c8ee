"""What we write: well formed, and what torch would have written."""

from __future__ import annotations

import io
import pickletools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import LocalProtocolError
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from tests.protocol.inline.streams import (
    NEWER,
    NEWER_STREAM,
    SMALL,
    SMALL_STREAM,
    WIDTHS,
    blobs_in,
    numel,
    retrieved_streams,
    stored_streams,
)

_STORAGES = {
    "float16": "torch HalfStorage",
    "bfloat16": "torch BFloat16Storage",
    "float32": "torch FloatStorage",
    "uint8": "torch ByteStorage",
    "int8": "torch CharStorage",
    **dict.fromkeys(NEWER, "torch.storage UntypedStorage"),
}


def test_literal_stream_both_ways() -> None:
    assert encode_tensor_list([SMALL]) == SMALL_STREAM
    assert decode_tensor_list(SMALL_STREAM) == [SMALL]


def test_empty_list_both_ways() -> None:
    assert encode_tensor_list([]) == b"\x80\x04](e."
    assert decode_tensor_list(b"\x80\x04](e.") == []
    assert decode_tensor_list(b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00].") == []


def test_our_stream_of_newer_dtypes_is_torchs_but_for_bookkeeping() -> None:
    torchs = decode_tensor_list(NEWER_STREAM)[1]
    ours = encode_tensor_list([torchs])
    calls = [step for step in _skeleton(ours) if step[0] not in ("PROTO", "EMPTY_LIST", "MARK")]
    theirs = _skeleton(NEWER_STREAM)
    assert all(step in theirs for step in calls)
    assert _blob_skeleton(blobs_in(ours)[0]) == _blob_skeleton(blobs_in(NEWER_STREAM)[1])


_BOOKKEEPING = {"FRAME", "MEMOIZE", "BINPUT"}


def _skeleton(stream: bytes) -> list[tuple[str, object]]:
    """The opcodes with their arguments, less bookkeeping and what depends on it."""
    return [
        (op.name, None if op.name == "BINGET" or isinstance(arg, bytes) else arg)
        for op, arg, _ in pickletools.genops(stream)
        if op.name not in _BOOKKEEPING
    ]


def _blob_skeleton(blob: bytes) -> tuple[list[list[tuple[str, object]]], bytes]:
    """The five pickles, the storage key made anonymous, and what follows them."""
    rest = io.BytesIO(blob)
    pickles = []
    for _ in range(5):
        ops = [(op.name, arg) for op, arg, _ in pickletools.genops(rest)]
        pickles.append(
            [
                (name, "key" if isinstance(arg, str) and arg.isdecimal() else arg)
                for name, arg in ops
                if name not in _BOOKKEEPING
            ]
        )
    return pickles, rest.read()


@pytest.mark.parametrize(
    "stream", stored_streams("single_group") + retrieved_streams("single_group")
)
def test_our_stream_is_torchs_but_for_bookkeeping(stream: bytes) -> None:
    ours = encode_tensor_list(decode_tensor_list(stream))
    assert _skeleton(ours) == _skeleton(stream)
    for our_blob, blob in zip(blobs_in(ours), blobs_in(stream), strict=True):
        assert _blob_skeleton(our_blob) == _blob_skeleton(blob)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_our_stream_is_well_formed(dtype: str) -> None:
    width = WIDTHS[dtype]
    shapes = [(2, 3), (), (0, 1 << 31), (70000,)]
    tensors = [InlineTensor(dtype, s, bytes(numel(s) * width)) for s in shapes]
    stream = encode_tensor_list(tensors)
    pickletools.dis(stream, out=io.StringIO())  # checks stack, marks and memo
    blobs = blobs_in(stream)
    assert len(blobs) == len(tensors)
    for blob, tensor in zip(blobs, tensors, strict=True):
        pickles, rest = _blob_skeleton(blob)
        assert ("GLOBAL", _STORAGES[dtype]) in pickles[3]
        assert rest == numel(tensor.shape).to_bytes(8, "little") + tensor.data


@pytest.mark.parametrize(
    ("count", "opcode"),
    [
        (255, b"K\xff"),
        (256, b"M\x00\x01"),
        (65535, b"M\xff\xff"),
        (65536, b"J\x00\x00\x01\x00"),
        (2**31 - 1, b"J\xff\xff\xff\x7f"),
        (2**31, b"\x8a\x05\x00\x00\x00\x80\x00"),
        (2**39 - 1, b"\x8a\x05\xff\xff\xff\xff\x7f"),
        (2**39, b"\x8a\x06\x00\x00\x00\x00\x80\x00"),
    ],
)
def test_each_width_of_a_number(count: int, opcode: bytes) -> None:
    tensor = InlineTensor("int8", (0, count), b"")
    stream = encode_tensor_list([tensor])
    assert b"(K\x00" + opcode + b"t(" + opcode + b"K\x01t" in stream
    assert decode_tensor_list(stream) == [tensor]


_SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)


@st.composite
def _tensors(draw: st.DrawFn, dtype: str) -> InlineTensor:
    shape = draw(_SHAPES)
    size = numel(shape) * WIDTHS[dtype]
    fill = draw(st.binary(min_size=min(size, 1), max_size=64))
    data = (fill * (size // max(len(fill), 1) + 1))[:size]
    return InlineTensor(dtype, shape, memoryview(data) if draw(st.booleans()) else data)


@pytest.mark.parametrize("dtype", WIDTHS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_round_trip(dtype: str, data: st.DataObject) -> None:
    tensors = data.draw(st.lists(_tensors(dtype), max_size=4))
    assert decode_tensor_list(encode_tensor_list(tensors)) == tensors


@given(st.lists(st.sampled_from(sorted(WIDTHS)).flatmap(_tensors), max_size=6))
@settings(deadline=None, max_examples=40)
def test_round_trip_of_mixed_types(tensors: list[InlineTensor]) -> None:
    assert decode_tensor_list(encode_tensor_list(tensors)) == tensors


def test_a_stream_too_long_for_one_message_is_our_mistake() -> None:
    size = 1 << 26
    tensor = InlineTensor("uint8", (size,), bytes(size))
    with pytest.raises(LocalProtocolError, match="fewer chunks"):
        encode_tensor_list([tensor] * 64)
