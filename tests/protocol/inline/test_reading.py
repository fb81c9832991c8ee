"""What we read: golden streams of the real peer, other spellings, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from tests.protocol.inline.streams import (
    BLOB,
    BLOB_PARTS,
    GOLDEN_STREAM,
    KEYS_PICKLE,
    LOAD,
    MAGIC_PICKLE,
    NEWER_STREAM,
    REBUILD,
    SENDER_PICKLE,
    SMALL,
    SMALL_STREAM,
    VERSION_PICKLE,
    blobs_in,
    list_or_refusal,
    listed,
    refused,
    retrieved_streams,
    storage_of,
    stored_streams,
    tensor_of,
)

_RECORDINGS = [("single_group", 1), ("tp2", 2)]


@pytest.mark.parametrize(("name", "ranks"), _RECORDINGS)
def test_recorded_chunks_come_back_as_stored(name: str, ranks: int) -> None:
    stored, retrieved = stored_streams(name), retrieved_streams(name)
    assert len(stored) == len(retrieved) == ranks
    assert stored != retrieved  # the storage keys differ
    for sent, received in zip(stored, retrieved, strict=True):
        assert decode_tensor_list(sent) == decode_tensor_list(received)


@pytest.mark.parametrize("stream", [s for name, _ in _RECORDINGS for s in stored_streams(name)])
def test_recorded_chunks_have_the_shape_of_the_spec(stream: bytes) -> None:
    # Spec '(2,64,16,1,4):float16:1', chunks of 256 tokens, 512 tokens.
    tensors = decode_tensor_list(stream)
    assert [(t.dtype, t.shape) for t in tensors] == [("float16", (2, 1, 256, 4))] * 2
    assert [t.data for t in tensors] == [blob[-4096:] for blob in blobs_in(stream)]
    assert len({bytes(t.data)[:64] for t in tensors}) == 2


def test_torchs_stream_of_newer_dtypes_is_read() -> None:
    shown = bytes(6 * row + column for row in (1, 2, 3) for column in (0, 2, 4))
    assert decode_tensor_list(NEWER_STREAM) == [
        InlineTensor("float8_e4m3fn", (3, 3), shown),
        InlineTensor("float8_e5m2", (2,), b"\x01\x7b"),
    ]


def _respelled(dtype: str, old: bytes, new: bytes) -> bytes:
    """Return our stream of one tensor with other words, the blob's length corrected."""
    stream = encode_tensor_list([InlineTensor(dtype, (3,), b"abc")])
    (blob,) = blobs_in(stream)
    size = len(blob).to_bytes(4, "little")
    other = blob.replace(old, new)
    stream = stream.replace(b"B" + size + blob, b"B" + len(other).to_bytes(4, "little") + other)
    return stream.replace(old, new)


@pytest.mark.parametrize(
    ("dtype", "old", "new", "words"),
    [
        ("float8_e4m3fn", b"_tensor_v3", b"_tensor_v2", "_v2: got a tuple, expected six arguments"),
        ("int8", b"_tensor_v2", b"_tensor_v3", "_v3: got a tuple, expected seven arguments"),
        (
            "float8_e4m3fn",
            b"torch.storage\nUntypedStorage",
            b"torch\nCharStorage",
            "expected an untyped storage",
        ),
        (
            "int8",
            b"torch\nCharStorage",
            b"torch.storage\nUntypedStorage",
            "expected a storage of a dtype",
        ),
        ("float8_e4m3fn", b"\x0dfloat8_e4m3fn", b"\x05int16", "int16"),
        ("float8_e4m3fn", b"\x0dfloat8_e4m3fn", b"\x04int8", "int8"),
    ],
)
def test_newer_dtypes_keep_to_their_call(dtype: str, old: bytes, new: bytes, words: str) -> None:
    refused(_respelled(dtype, old, new), words)


def test_a_stream_that_is_not_bytes_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="cast"):
        decode_tensor_list(memoryview(SMALL_STREAM)[::2])


@pytest.mark.parametrize(
    "stream",
    [
        b"\x80\x04]" + tensor_of() + b"a.",
        b"\x80\x05](" + tensor_of() + b"e.",
        b"\x80\x04]q\x07(" + tensor_of() + b"e.",
        listed(tensor_of(view=b"K\x03\x85K\x01\x85")),
        listed(tensor_of(view=b"M\x03\x00\x85J\x01\x00\x00\x00\x85")),
        listed(tensor_of(view=b"\x8a\x01\x03\x85\x8a\x02\x01\x00\x85")),
        listed(tensor_of(grad=b"\x88")),
        listed(tensor_of(LOAD + b"\x8e" + len(BLOB).to_bytes(8, "little") + BLOB + b"\x85R")),
        listed(tensor_of(LOAD + b"\x94B" + len(BLOB).to_bytes(4, "little") + BLOB + b"\x85R")),
        listed(tensor_of().replace(REBUILD, b"ctorch._utils\n_rebuild_tensor_v2\n")),
        b"\x80\x04](" + tensor_of(view=b"K\x03\x85r\x00\x01\x00\x00K\x01\x85") + b"e.",
    ],
)
def test_other_spellings_of_the_same_list(stream: bytes) -> None:
    assert decode_tensor_list(stream) == [SMALL]


def test_storage_and_tensor_shared_by_memo() -> None:
    first = tensor_of(storage_of() + b"q\x63") + b"r\x64\x00\x00\x00"
    second = tensor_of(b"h\x63", b"K\x01", b"K\x02\x85K\x01\x85")
    stream = listed(first, second, b"j\x64\x00\x00\x00")
    assert decode_tensor_list(stream) == [SMALL, InlineTensor("int8", (2,), b"\x7f\xff"), SMALL]


def test_order_of_the_list_is_kept() -> None:
    other = tensor_of(offset=b"K\x02", view=b"K\x01\x85K\x01\x85")
    expected = InlineTensor("int8", (1,), b"\xff")
    assert decode_tensor_list(listed(tensor_of(), other)) == [SMALL, expected]
    assert decode_tensor_list(listed(other, tensor_of())) == [expected, SMALL]


@pytest.mark.parametrize("stream", [SMALL_STREAM, GOLDEN_STREAM], ids=["small", "golden"])
def test_every_truncation_is_refused(stream: bytes) -> None:
    for size in range(len(stream)):
        refused(stream[:size])


def test_every_truncation_of_the_blob_is_refused() -> None:
    for size in range(len(BLOB)):
        refused(listed(tensor_of(storage_of(BLOB[:size]))))


def test_extensions_are_refused() -> None:
    refused(SMALL_STREAM + b"\x00", "end of the stream")
    refused(GOLDEN_STREAM + GOLDEN_STREAM, "end of the stream")
    refused(listed(tensor_of(storage_of(BLOB + b"\x00"))), "contents of a blob")


def test_reordered_blobs_are_refused() -> None:
    for first in range(len(BLOB_PARTS)):
        for second in range(first):
            parts = list(BLOB_PARTS)
            parts[first], parts[second] = parts[second], parts[first]
            refused(listed(tensor_of(storage_of(b"".join(parts)))))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (MAGIC_PICKLE, b"\x80\x02K\x07.", "magic number"),
        (MAGIC_PICKLE, b"\x80\x02].", "magic number"),
        (VERSION_PICKLE, b"\x80\x02M\xea\x03.", "version"),
        (SENDER_PICKLE, b"\x80\x02K\x01.", "little_endian"),
        (SENDER_PICKLE, b"\x80\x02}.", "little_endian"),
        (b"little_endian\x88", b"little_endian\x89", "little_endian"),
        (b"little_endian\x88", b"little_endianK\x01", "little_endian"),
        (b"storagectorch", b"Storagectorch", "persistent id"),
        (b"CharStorage", b"LongStorage", "allow-list"),
        (b"ctorch\nCharStorage\n", b"N", "storage class"),
        (b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00xpu", "'cpu'"),
        (b"X\x03\x00\x00\x00cpu", b"]", "'cpu'"),
        (b"X\x01\x00\x00\x000X\x03", b"K\x00X\x03", "key"),
        (b"K\x03NtQ", b"K\x03K\x00tQ", "None"),
        (b"K\x03NtQ", b"K\x03NNtQ", "six"),
        (b"K\x03NtQ", b"K\x04NtQ", "contents of a blob"),
        (b"K\x03NtQ", b"J\xff\xff\xff\xffNtQ", "integer from 0"),
        (b"K\x03NtQ", b"\x88NtQ", "integer from 0"),
        (b"tQ.", b"t.", "one storage"),
        (KEYS_PICKLE, b"\x80\x02].", "storage keys"),
        (KEYS_PICKLE, b"\x80\x02]X\x01\x00\x00\x001a.", "storage keys"),
        (KEYS_PICKLE, b"\x80\x02](X\x01\x00\x00\x000X\x01\x00\x00\x001e.", "storage keys"),
        (KEYS_PICKLE, b"\x80\x02X\x01\x00\x00\x000.", "storage keys"),
        (b"\x03" + bytes(7), b"\x02" + bytes(7), "element count"),
        (b"\x03" + bytes(7), b"\xff" * 8, "element count"),
    ],
)
def test_wrong_blobs(old: bytes, new: bytes, match: str) -> None:
    assert BLOB.count(old) == 1
    refused(listed(tensor_of(storage_of(BLOB.replace(old, new)))), match)


def test_a_key_that_is_a_number_is_refused_even_if_listed() -> None:
    blob = BLOB.replace(b"X\x01\x00\x00\x000", b"K\x00")
    refused(listed(tensor_of(storage_of(blob))), "key as text")


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_a_list_or_refused(stream: bytes) -> None:
    list_or_refusal(stream)
    list_or_refusal(b"\x80\x04](" + stream)
    list_or_refusal(listed(tensor_of(storage_of(stream))))


_HEAD_BYTES = 600  # of a golden stream: everything before the first tensor's data, and some of it


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_mutated_golden_streams_are_a_list_or_refused(data: st.DataObject) -> None:
    stream = bytearray(data.draw(st.sampled_from([GOLDEN_STREAM, SMALL_STREAM])))
    for _ in range(data.draw(st.integers(1, 3))):
        limit = data.draw(st.sampled_from([min(_HEAD_BYTES, len(stream)), len(stream)]))
        start = data.draw(st.integers(0, limit))
        end = data.draw(st.integers(start, min(start + 4, len(stream))))
        stream[start:end] = data.draw(st.binary(max_size=4))
    list_or_refusal(bytes(stream))


def test_every_single_byte_of_the_small_stream_changed() -> None:
    for position in range(len(SMALL_STREAM)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(SMALL_STREAM)
            changed[position] ^= flip
            list_or_refusal(bytes(changed))


def test_max_tensors() -> None:
    stream = encode_tensor_list([SMALL] * 5)
    assert len(decode_tensor_list(stream, max_tensors=5)) == 5
    with pytest.raises(RemoteProtocolError, match="at most 4 tensors"):
        decode_tensor_list(stream, max_tensors=4)
    assert len(decode_tensor_list(encode_tensor_list([SMALL] * 4096))) == 4096
    refused(encode_tensor_list([SMALL] * 4097), "at most 4096 tensors")
