"""The inline tensor list: golden streams of the real peer, literal bytes, damage and malice."""

from __future__ import annotations

import io
import json
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.tensors import InlineTensor, decode_tensor_list, encode_tensor_list

_GOLDEN = Path(__file__).parents[1] / "golden"
_NEWER = ("float8_e4m3fn", "float8_e5m2")
_WIDTHS = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "uint8": 1,
    "int8": 1,
    **dict.fromkeys(_NEWER, 1),
}
_STORAGES = {
    "float16": "torch HalfStorage",
    "bfloat16": "torch BFloat16Storage",
    "float32": "torch FloatStorage",
    "uint8": "torch ByteStorage",
    "int8": "torch CharStorage",
    **dict.fromkeys(_NEWER, "torch.storage UntypedStorage"),
}

# One int8 tensor of shape (3,), byte by byte.
_MAGIC_PICKLE = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
_VERSION_PICKLE = b"\x80\x02M\xe9\x03."
_SENDER_PICKLE = (
    b"\x80\x02}("
    b"X\x10\x00\x00\x00protocol_versionM\xe9\x03"
    b"X\x0d\x00\x00\x00little_endian\x88"
    b"X\x0a\x00\x00\x00type_sizes}("
    b"X\x05\x00\x00\x00shortK\x02X\x03\x00\x00\x00intK\x04X\x04\x00\x00\x00longK\x04uu."
)
_STORAGE_PICKLE = (
    b"\x80\x02("
    b"X\x07\x00\x00\x00storagectorch\nCharStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x03NtQ."
)
_KEYS_PICKLE = b"\x80\x02]X\x01\x00\x00\x000a."
_BLOB_PARTS = (
    _MAGIC_PICKLE,
    _VERSION_PICKLE,
    _SENDER_PICKLE,
    _STORAGE_PICKLE,
    _KEYS_PICKLE,
    b"\x03\x00\x00\x00\x00\x00\x00\x00",
    b"\x01\x7f\xff",
)
_BLOB = b"".join(_BLOB_PARTS)
_REBUILD = b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93\x94"
_LOAD = b"\x8c\x0dtorch.storage\x8c\x10_load_from_bytes\x93\x94"
_HOOKS = b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93\x94"
_THREE = b"(K\x03t(K\x01t"


def _storage(blob: bytes = _BLOB) -> bytes:
    return _LOAD + b"B" + len(blob).to_bytes(4, "little") + blob + b"\x85R"


def _tensor(
    storage: bytes | None = None,
    offset: bytes = b"K\x00",
    view: bytes = _THREE,
    grad: bytes = b"\x89",
    hooks: bytes = _HOOKS + b")R",
) -> bytes:
    storage = _storage() if storage is None else storage
    return _REBUILD + b"(" + storage + offset + view + grad + hooks + b"tR"


def _listed(*items: bytes) -> bytes:
    return b"\x80\x04](" + b"".join(items) + b"e."


_SMALL_STREAM = _listed(_tensor())
_SMALL = InlineTensor("int8", (3,), b"\x01\x7f\xff")


def _refused(stream: bytes, match: str = "inline tensor list") -> None:
    with pytest.raises(RemoteProtocolError, match=match):
        decode_tensor_list(stream)


def _list_or_refusal(stream: bytes) -> None:
    try:
        decoded = decode_tensor_list(stream)
    except RemoteProtocolError:
        return
    assert isinstance(decoded, list)
    assert all(isinstance(tensor, InlineTensor) for tensor in decoded)


# --- golden streams ------------------------------------------------------------------------------


def _recorded(name: str, op: str, direction: str) -> list[Any]:
    messages = json.loads((_GOLDEN / f"v056_engine_driven_pickle_{name}.json").read_text())
    return [
        msgpack.unpackb(bytes.fromhex(message["frames"][-1]))
        for message in messages
        if message["op"] == op and message["direction"] == direction
    ]


def _stored(name: str) -> list[bytes]:
    return _recorded(name, "commit_store", "request")


def _retrieved(name: str) -> list[bytes]:
    return [reply["data"] for reply in _recorded(name, "prepare_retrieve", "response")]


def _blobs(stream: bytes) -> list[bytes]:
    return [arg for _, arg, _ in pickletools.genops(stream) if isinstance(arg, bytes)]


_RECORDINGS = [("single_group", 1), ("tp2", 2)]
_GOLDEN_STREAM = _stored("single_group")[0]


@pytest.mark.parametrize(("name", "ranks"), _RECORDINGS)
def test_recorded_chunks_come_back_as_stored(name: str, ranks: int) -> None:
    stored, retrieved = _stored(name), _retrieved(name)
    assert len(stored) == len(retrieved) == ranks
    assert stored != retrieved  # the storage keys differ
    for sent, received in zip(stored, retrieved, strict=True):
        assert decode_tensor_list(sent) == decode_tensor_list(received)


@pytest.mark.parametrize("stream", [s for name, _ in _RECORDINGS for s in _stored(name)])
def test_recorded_chunks_have_the_shape_of_the_spec(stream: bytes) -> None:
    # Spec '(2,64,16,1,4):float16:1', chunks of 256 tokens, 512 tokens.
    tensors = decode_tensor_list(stream)
    assert [(t.dtype, t.shape) for t in tensors] == [("float16", (2, 1, 256, 4))] * 2
    assert [t.data for t in tensors] == [blob[-4096:] for blob in _blobs(stream)]
    assert len({bytes(t.data)[:64] for t in tensors}) == 2


def test_data_of_a_contiguous_tensor_is_not_copied() -> None:
    (tensor,) = decode_tensor_list(_SMALL_STREAM)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is _SMALL_STREAM
    assert decode_tensor_list(memoryview(b"12" + _SMALL_STREAM)[2:]) == [_SMALL]


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((2, 3, 4), (12, 4, 1)), ((2, 1, 3, 1), (3, 99, 1, 77)), ((1, 1), (5, 5)), ((3, 0), (9, 9))],
)
def test_unit_and_neighbouring_axes_do_not_hide_contiguity(
    shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    stream = _listed(_strided(0, shape, stride))
    (tensor,) = decode_tensor_list(stream)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is stream
    assert tensor == InlineTensor("float16", shape, _shorts(_numel(shape)))


# --- what we write -------------------------------------------------------------------------------


def test_literal_stream_both_ways() -> None:
    assert encode_tensor_list([_SMALL]) == _SMALL_STREAM
    assert decode_tensor_list(_SMALL_STREAM) == [_SMALL]


def test_empty_list_both_ways() -> None:
    assert encode_tensor_list([]) == b"\x80\x04](e."
    assert decode_tensor_list(b"\x80\x04](e.") == []
    assert decode_tensor_list(b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00].") == []


# pickle.dumps of torch 2.13.0: [a, b] with the bytes of a, an e4m3fn, counting up in a storage of
# (4, 6) of which [1:, ::2] is shown, and b, two e5m2.
_NEWER_STREAM = bytes.fromhex(
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


def test_torchs_stream_of_newer_dtypes_is_read() -> None:
    shown = bytes(6 * row + column for row in (1, 2, 3) for column in (0, 2, 4))
    assert decode_tensor_list(_NEWER_STREAM) == [
        InlineTensor("float8_e4m3fn", (3, 3), shown),
        InlineTensor("float8_e5m2", (2,), b"\x01\x7b"),
    ]


def test_our_stream_of_newer_dtypes_is_torchs_but_for_bookkeeping() -> None:
    torchs = decode_tensor_list(_NEWER_STREAM)[1]
    ours = encode_tensor_list([torchs])
    calls = [step for step in _skeleton(ours) if step[0] not in ("PROTO", "EMPTY_LIST", "MARK")]
    theirs = _skeleton(_NEWER_STREAM)
    assert all(step in theirs for step in calls)
    assert _blob_skeleton(_blobs(ours)[0]) == _blob_skeleton(_blobs(_NEWER_STREAM)[1])


def _respelled(dtype: str, old: bytes, new: bytes) -> bytes:
    """Return our stream of one tensor with other words, the blob's length corrected."""
    stream = encode_tensor_list([InlineTensor(dtype, (3,), b"abc")])
    (blob,) = _blobs(stream)
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
    _refused(_respelled(dtype, old, new), words)


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


@pytest.mark.parametrize("stream", _stored("single_group") + _retrieved("single_group"))
def test_our_stream_is_torchs_but_for_bookkeeping(stream: bytes) -> None:
    ours = encode_tensor_list(decode_tensor_list(stream))
    assert _skeleton(ours) == _skeleton(stream)
    for our_blob, blob in zip(_blobs(ours), _blobs(stream), strict=True):
        assert _blob_skeleton(our_blob) == _blob_skeleton(blob)


@pytest.mark.parametrize("dtype", _WIDTHS)
def test_our_stream_is_well_formed(dtype: str) -> None:
    width = _WIDTHS[dtype]
    shapes = [(2, 3), (), (0, 1 << 31), (70000,)]
    tensors = [InlineTensor(dtype, s, bytes(_numel(s) * width)) for s in shapes]
    stream = encode_tensor_list(tensors)
    pickletools.dis(stream, out=io.StringIO())  # checks stack, marks and memo
    blobs = _blobs(stream)
    assert len(blobs) == len(tensors)
    for blob, tensor in zip(blobs, tensors, strict=True):
        pickles, rest = _blob_skeleton(blob)
        assert ("GLOBAL", _STORAGES[dtype]) in pickles[3]
        assert rest == _numel(tensor.shape).to_bytes(8, "little") + tensor.data


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


def _numel(shape: tuple[int, ...]) -> int:
    numel = 1
    for size in shape:
        numel *= size
    return numel


_SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)


@st.composite
def _tensors(draw: st.DrawFn, dtype: str) -> InlineTensor:
    shape = draw(_SHAPES)
    size = _numel(shape) * _WIDTHS[dtype]
    fill = draw(st.binary(min_size=min(size, 1), max_size=64))
    data = (fill * (size // max(len(fill), 1) + 1))[:size]
    return InlineTensor(dtype, shape, memoryview(data) if draw(st.booleans()) else data)


@pytest.mark.parametrize("dtype", _WIDTHS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_round_trip(dtype: str, data: st.DataObject) -> None:
    tensors = data.draw(st.lists(_tensors(dtype), max_size=4))
    assert decode_tensor_list(encode_tensor_list(tensors)) == tensors


@given(st.lists(st.sampled_from(sorted(_WIDTHS)).flatmap(_tensors), max_size=6))
@settings(deadline=None, max_examples=40)
def test_round_trip_of_mixed_types(tensors: list[InlineTensor]) -> None:
    assert decode_tensor_list(encode_tensor_list(tensors)) == tensors


@pytest.mark.parametrize(
    ("dtype", "shape", "data", "match"),
    [
        ("float64", (1,), b"12345678", "float64"),
        ("torch.int8", (1,), b"1", "dtype"),
        ("int8", [1], b"1", "shape"),
        ("int8", (True,), b"1", "shape"),
        ("int8", (-1, -1), b"1", "shape"),
        ("int8", (1,) * 17, b"1", "at most 16"),
        ("int8", (0, 1 << 31, 1 << 31), b"", "2\\*\\*63"),
        ("float16", (3,), b"12345", "has 6"),
        ("float16", (3,), b"1234567", "has 6"),
        ("float32", (1,), memoryview(b"1234").cast("f"), "cast"),
        ("int8", (2,), memoryview(b"1234")[::2], "contiguous"),
        ("int8", (4,), memoryview(b"1234").cast("B", (2, 2)), "cast"),
    ],
)
def test_a_wrong_tensor_is_our_mistake(dtype: str, shape: Any, data: Any, match: str) -> None:
    with pytest.raises(LocalProtocolError, match=match):
        InlineTensor(dtype, shape, data)


def test_a_stream_too_long_for_one_message_is_our_mistake() -> None:
    size = 1 << 26
    tensor = InlineTensor("uint8", (size,), bytes(size))
    with pytest.raises(LocalProtocolError, match="fewer chunks"):
        encode_tensor_list([tensor] * 64)


def test_a_stream_that_is_not_bytes_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="cast"):
        decode_tensor_list(memoryview(_SMALL_STREAM)[::2])


# --- what we read: forms that torch or another pickler may choose ---------------------------------


def _shorts(count: int) -> bytes:
    return b"".join(value.to_bytes(2, "little") for value in range(count))


def _half_blob(count: int) -> bytes:
    storage = _STORAGE_PICKLE.replace(b"CharStorage", b"HalfStorage")
    storage = storage.replace(b"K\x03N", b"M" + count.to_bytes(2, "little") + b"N")
    return b"".join(_BLOB_PARTS[:3]) + storage + _KEYS_PICKLE + count.to_bytes(8, "little")


def _ints(*values: int) -> bytes:
    return b"(" + b"".join(b"J" + v.to_bytes(4, "little", signed=True) for v in values) + b"t"


def _strided(offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A view of a float16 storage whose element i is the integer i."""
    storage = _storage(_half_blob(24) + _shorts(24))
    return _tensor(storage, b"K" + bytes([offset]), _ints(*shape) + _ints(*stride))


@pytest.mark.parametrize(
    ("offset", "shape", "stride", "elements"),
    [
        (0, (24,), (1,), range(24)),
        (5, (3,), (1,), [5, 6, 7]),
        (23, (), (), [23]),
        (2, (1, 3), (99, 1), [2, 3, 4]),
        (0, (6, 4), (1, 6), [row + 6 * col for row in range(6) for col in range(4)]),
        (7, (2, 3), (6, 1), [7, 8, 9, 13, 14, 15]),
        (0, (2, 3, 2), (12, 4, 2), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22]),
        (1, (3, 2, 2), (1, 12, 6), [1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21]),
        (3, (4,), (0,), [3, 3, 3, 3]),
        (3, (2, 2), (0, 1), [3, 4, 3, 4]),
        (3, (2, 2), (2, 0), [3, 3, 5, 5]),
        (0, (3, 2), (1, 1), [0, 1, 1, 2, 2, 3]),
        (99, (0, 3), (3, 1), []),
        (0, (3, 0), (9, 9), []),
        (0, (2**31 - 1, 0), (9, 9), []),
    ],
)
def test_strided_views(
    offset: int, shape: tuple[int, ...], stride: tuple[int, ...], elements: list[int]
) -> None:
    (tensor,) = decode_tensor_list(_listed(_strided(offset, shape, stride)))
    data = b"".join(value.to_bytes(2, "little") for value in elements)
    assert tensor == InlineTensor("float16", shape, data)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.readonly


@pytest.mark.parametrize(
    ("offset", "shape", "stride"),
    [
        (24, (), ()),
        (0, (25,), (1,)),
        (1, (24,), (1,)),
        (0, (2,), (24,)),
        (0, (5, 6), (6, 1)),
        (0, (2,), (-1,)),
        (0, (-1,), (1,)),
        (0, (2, 2), (1,)),
        (0, (1,) * 17, (1,) * 17),
        (0, (0, 2**31 - 1, 2**31 - 1), (1, 1, 1)),
    ],
)
def test_views_outside_their_storage(
    offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    _refused(_listed(_strided(offset, shape, stride)))


@pytest.mark.parametrize(
    "stream",
    [
        b"\x80\x04]" + _tensor() + b"a.",
        b"\x80\x05](" + _tensor() + b"e.",
        b"\x80\x04]q\x07(" + _tensor() + b"e.",
        _listed(_tensor(view=b"K\x03\x85K\x01\x85")),
        _listed(_tensor(view=b"M\x03\x00\x85J\x01\x00\x00\x00\x85")),
        _listed(_tensor(view=b"\x8a\x01\x03\x85\x8a\x02\x01\x00\x85")),
        _listed(_tensor(grad=b"\x88")),
        _listed(_tensor(_LOAD + b"\x8e" + len(_BLOB).to_bytes(8, "little") + _BLOB + b"\x85R")),
        _listed(_tensor(_LOAD + b"\x94B" + len(_BLOB).to_bytes(4, "little") + _BLOB + b"\x85R")),
        _listed(_tensor().replace(_REBUILD, b"ctorch._utils\n_rebuild_tensor_v2\n")),
        b"\x80\x04](" + _tensor(view=b"K\x03\x85r\x00\x01\x00\x00K\x01\x85") + b"e.",
    ],
)
def test_other_spellings_of_the_same_list(stream: bytes) -> None:
    assert decode_tensor_list(stream) == [_SMALL]


def test_storage_and_tensor_shared_by_memo() -> None:
    first = _tensor(_storage() + b"q\x63") + b"r\x64\x00\x00\x00"
    second = _tensor(b"h\x63", b"K\x01", b"K\x02\x85K\x01\x85")
    stream = _listed(first, second, b"j\x64\x00\x00\x00")
    assert decode_tensor_list(stream) == [_SMALL, InlineTensor("int8", (2,), b"\x7f\xff"), _SMALL]


def test_order_of_the_list_is_kept() -> None:
    other = _tensor(offset=b"K\x02", view=b"K\x01\x85K\x01\x85")
    expected = InlineTensor("int8", (1,), b"\xff")
    assert decode_tensor_list(_listed(_tensor(), other)) == [_SMALL, expected]
    assert decode_tensor_list(_listed(other, _tensor())) == [expected, _SMALL]


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [_SMALL_STREAM, _GOLDEN_STREAM], ids=["small", "golden"])
def test_every_truncation_is_refused(stream: bytes) -> None:
    for size in range(len(stream)):
        _refused(stream[:size])


def test_every_truncation_of_the_blob_is_refused() -> None:
    for size in range(len(_BLOB)):
        _refused(_listed(_tensor(_storage(_BLOB[:size]))))


def test_extensions_are_refused() -> None:
    _refused(_SMALL_STREAM + b"\x00", "end of the stream")
    _refused(_GOLDEN_STREAM + _GOLDEN_STREAM, "end of the stream")
    _refused(_listed(_tensor(_storage(_BLOB + b"\x00"))), "contents of a blob")


def test_reordered_blobs_are_refused() -> None:
    for first in range(len(_BLOB_PARTS)):
        for second in range(first):
            parts = list(_BLOB_PARTS)
            parts[first], parts[second] = parts[second], parts[first]
            _refused(_listed(_tensor(_storage(b"".join(parts)))))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (_MAGIC_PICKLE, b"\x80\x02K\x07.", "magic number"),
        (_MAGIC_PICKLE, b"\x80\x02].", "magic number"),
        (_VERSION_PICKLE, b"\x80\x02M\xea\x03.", "version"),
        (_SENDER_PICKLE, b"\x80\x02K\x01.", "little_endian"),
        (_SENDER_PICKLE, b"\x80\x02}.", "little_endian"),
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
        (_KEYS_PICKLE, b"\x80\x02].", "storage keys"),
        (_KEYS_PICKLE, b"\x80\x02]X\x01\x00\x00\x001a.", "storage keys"),
        (_KEYS_PICKLE, b"\x80\x02](X\x01\x00\x00\x000X\x01\x00\x00\x001e.", "storage keys"),
        (_KEYS_PICKLE, b"\x80\x02X\x01\x00\x00\x000.", "storage keys"),
        (b"\x03" + bytes(7), b"\x02" + bytes(7), "element count"),
        (b"\x03" + bytes(7), b"\xff" * 8, "element count"),
    ],
)
def test_wrong_blobs(old: bytes, new: bytes, match: str) -> None:
    assert _BLOB.count(old) == 1
    _refused(_listed(_tensor(_storage(_BLOB.replace(old, new)))), match)


def test_a_key_that_is_a_number_is_refused_even_if_listed() -> None:
    blob = _BLOB.replace(b"X\x01\x00\x00\x000", b"K\x00")
    _refused(_listed(_tensor(_storage(blob))), "key as text")


@pytest.mark.parametrize(
    ("stream", "match"),
    [
        (b"", "1 more bytes"),
        (b"\x80\x01](e.", "protocol 2 to 5"),
        (b"\x80\x06](e.", "protocol 2 to 5"),
        (b"\x80\x04N.", "a list"),
        (b"\x80\x04)." + b"", "a list"),
        (b"\x80\x04.", "a value to use"),
        (b"\x80\x04]].", "one value"),
        (b"\x80\x04](.", "a value to use"),
        (b"\x80\x04]e.", "MARK"),
        (b"\x80\x04](u.", "a dict"),
        (b"\x80\x04}(X\x01\x00\x00\x00au.", "even number"),
        (b"\x80\x04}(]Nu.", "text as dict key"),
        (b"\x80\x04NNa.", "a list to append"),
        (b"\x80\x04(\x85.", "a value to use"),
        (b"\x80\x04h\x00.", "memo"),
        (b"\x80\x04]\x94a.", "a value to use"),
        (_listed(b"N"), "a tensor"),
        (_listed(_storage()), "a tensor"),
        (_listed(_HOOKS + b")R"), "a tensor"),
        (_listed(_REBUILD), "a tensor"),
        (b"\x80\x04]\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "within the stream"),
        (_listed(_tensor(hooks=b"}")), "empty OrderedDict"),
        (_listed(_tensor(hooks=_HOOKS + b"]\x85R")), "no arguments"),
        (_listed(_tensor(hooks=_HOOKS + b")R}")), "six arguments"),
        (_listed(_tensor(grad=b"K\x00")), "boolean"),
        (_listed(_tensor(storage=b"N")), "a storage"),
        (_listed(_tensor(offset=b"\x88")), "storage offset"),
        (_listed(_tensor(offset=b"\x8a\x0c" + b"\x7f" * 12)), "storage offset"),
        (_listed(_tensor(offset=b"\x8a\x11" + bytes(17))), "at most 16 bytes"),
        (_listed(_tensor(view=b"](K\x03t")), "shape"),
        (_listed(_LOAD + b")R"), "one argument"),
        (_listed(_LOAD + b"X\x01\x00\x00\x00a\x85R"), "one argument"),
        (_listed(_LOAD + b"]R"), "tuple of arguments"),
        (_listed(b"\x8c\x02\xff\xfe"), "UTF-8"),
        (_listed(b"\x8c\x03\xed\xa0\x80"), "UTF-8"),
        (_listed(b"X\x01\x01\x00\x00" + b"a" * 257), "at most 256 bytes"),
        (_listed(b"ctorch" + b"h" * 300 + b"\nx\n"), "a line of"),
        (_listed(b"c\xff\nx\n"), "UTF-8"),
        (_listed(b"K\x01X\x01\x00\x00\x00a\x93"), "name as text"),
        (_listed(b"X\x01\x00\x00\x00aN\x93"), "name as text"),
    ],
)
def test_wrong_lists(stream: bytes, match: str) -> None:
    _refused(stream, match)


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_a_list_or_refused(stream: bytes) -> None:
    _list_or_refusal(stream)
    _list_or_refusal(b"\x80\x04](" + stream)
    _list_or_refusal(_listed(_tensor(_storage(stream))))


_OPCODE_BYTES = st.sampled_from([op.code.encode("latin1") for op in pickletools.opcodes])
_PIECES = st.sampled_from([_REBUILD, _LOAD, _HOOKS, _storage(), _tensor(), b"K\x02", b"(K\x03t"])


@given(st.lists(_OPCODE_BYTES | _PIECES | st.binary(max_size=3), max_size=40).map(b"".join))
@settings(deadline=None, max_examples=300)
def test_any_opcodes_are_a_list_or_refused(stream: bytes) -> None:
    _list_or_refusal(stream)
    _list_or_refusal(_listed(stream))
    _list_or_refusal(_listed(_tensor(_storage(stream))))


_HEAD_BYTES = 600  # of a golden stream: everything before the first tensor's data, and some of it


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_mutated_golden_streams_are_a_list_or_refused(data: st.DataObject) -> None:
    stream = bytearray(data.draw(st.sampled_from([_GOLDEN_STREAM, _SMALL_STREAM])))
    for _ in range(data.draw(st.integers(1, 3))):
        limit = data.draw(st.sampled_from([min(_HEAD_BYTES, len(stream)), len(stream)]))
        start = data.draw(st.integers(0, limit))
        end = data.draw(st.integers(start, min(start + 4, len(stream))))
        stream[start:end] = data.draw(st.binary(max_size=4))
    _list_or_refusal(bytes(stream))


def test_every_single_byte_of_the_small_stream_changed() -> None:
    for position in range(len(_SMALL_STREAM)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(_SMALL_STREAM)
            changed[position] ^= flip
            _list_or_refusal(bytes(changed))


# --- malice --------------------------------------------------------------------------------------


def _attacks() -> Iterator[tuple[str, bytes]]:
    command = b"X\x02\x00\x00\x00id"
    for module, name in (("os", "system"), ("builtins", "eval"), ("torch", "load")):
        global_ = f"c{module}\n{name}\n".encode()
        stacked = b"".join(b"\x8c" + bytes([len(p)]) + p.encode() for p in (module, name)) + b"\x93"
        yield f"GLOBAL {name}", global_ + command + b"\x85R"
        yield f"STACK_GLOBAL {name}", stacked + command + b"\x85R"
        yield f"bare GLOBAL {name}", global_
        yield f"INST {name}", b"(" + command + f"i{module}\n{name}\n".encode()
        yield f"OBJ {name}", b"(" + global_ + command + b"o"
        yield f"NEWOBJ {name}", global_ + command + b"\x85\x81"
        yield f"NEWOBJ_EX {name}", global_ + command + b"\x85}\x92"
    yield "OBJ of an allowed name", b"(ccollections\nOrderedDict\no"
    yield "NEWOBJ of an allowed name", _HOOKS + b")\x81"
    yield "BUILD", _tensor() + b"}b"
    yield "EXT1", b"\x82\x01"
    yield "PERSID", b"Pos.system\n"
    yield "BINPERSID outside a blob", b"NQ"
    yield "dotted name", b"\x8c\x05torch\x8c\x16_utils.sys.modules.get\x93"
    yield "storage class outside a blob", b"ctorch\nHalfStorage\n"
    yield "REDUCE of text", command + b")R"
    yield "REDUCE of a tensor", _tensor() + b")R"
    yield "READONLY_BUFFER", b"\x97\x98"
    yield "FLOAT", b"F1\n"
    yield "LONG4 of 2 GiB", b"\x8b\xff\xff\xff\x7f\x00"
    yield "LONG4 negative", b"\x8b\xff\xff\xff\xff"
    yield "decimal LONG", b"L" + b"9" * 100_000 + b"L\n"
    yield "LONG1 of 255 bytes", b"\x8a\xff" + b"\x7f" * 255
    yield "BINBYTES of 4 GiB", b"B\xff\xff\xff\xff"
    yield "BINBYTES8 of 2**64", b"\x8e" + b"\xff" * 8
    yield "BINUNICODE of 4 GiB", b"X\xff\xff\xff\xff"
    yield "BYTEARRAY8", b"\x96" + b"\xff" * 8


@pytest.mark.parametrize(("name", "attack"), list(_attacks()))
def test_attacks_are_refused_outside_and_inside_a_blob(name: str, attack: bytes) -> None:
    _refused(_listed(attack))
    _refused(_listed(_tensor(), attack))
    _refused(_listed(_tensor(_storage(b"\x80\x02" + attack + b"."))))
    for part in range(5):
        parts = list(_BLOB_PARTS)
        parts[part] = b"\x80\x02" + attack + b"."
        _refused(_listed(_tensor(_storage(b"".join(parts)))))


def test_a_blob_within_a_blob_is_refused() -> None:
    blob = _BLOB
    for _ in range(1000):
        blob = b"\x80\x04" + _storage(blob) + b"."
    _refused(_listed(_tensor(_storage(blob))), "allow-list")


@pytest.mark.parametrize("name", [_REBUILD, _LOAD, _HOOKS])
def test_a_blob_names_nothing_but_storages(name: bytes) -> None:
    _refused(_listed(_tensor(_storage(b"\x80\x02" + name + b"."))), "allow-list")


def test_billion_laughs_lists_are_refused_without_walking_them() -> None:
    level = b"](" + b"h%c" * 10 + b"e\x94"
    levels = [b"]\x94"] + [level.replace(b"%c", bytes([depth])) for depth in range(100)]
    _refused(b"\x80\x04](" + b"".join(levels) + b"e.", "a list, expected a tensor")
    _refused(_listed(_tensor(offset=b"(" + b"".join(levels) + b"t")), "got a tuple")


@pytest.mark.parametrize(
    "nested",
    [
        b"]" * 3000 + b"a" * 2999,
        b"N" + b"\x85" * 300_000,
        b"]" + b"\x94h\x00a" * 100,
        b"]\x94h\x00ah\x00\x85",
        b"(" * 3000 + b"t" * 3000,
    ],
    ids=["lists", "tuples", "itself", "itself in a tuple", "marks"],
)
def test_deep_nesting_is_refused(nested: bytes) -> None:
    _refused(b"\x80\x04" + nested + b".")
    _refused(_listed(nested))
    _refused(_listed(_tensor(offset=nested)))
    for part in range(5):
        parts = list(_BLOB_PARTS)
        parts[part] = b"\x80\x02" + nested + b"."
        _refused(_listed(_tensor(_storage(b"".join(parts)))))


def test_limits_of_the_machine() -> None:
    _refused(b"\x80\x04" + b"N" * 5000 + b".", "values on the stack")
    _refused(b"\x80\x04" + b"(" * 5000 + b".", "open marks")
    _refused(b"\x80\x04" + b"]\x94" + b"h\x00a" * 400_000 + b".", "opcodes")
    _refused(b"\x80\x04]" + b"\x94" * 200_000 + b".", "memo entries")
    puts = b"".join(b"r" + index.to_bytes(4, "little") for index in range(0, 1 << 31, 1 << 13))
    _refused(b"\x80\x04]" + puts + b".", "memo entries")
    _refused(_listed(_tensor(_storage(b"\x80\x02]" + b"\x94" * 70 + b"."))), "opcodes")


def test_max_tensors() -> None:
    stream = encode_tensor_list([_SMALL] * 5)
    assert len(decode_tensor_list(stream, max_tensors=5)) == 5
    with pytest.raises(RemoteProtocolError, match="at most 4 tensors"):
        decode_tensor_list(stream, max_tensors=4)
    assert len(decode_tensor_list(encode_tensor_list([_SMALL] * 4096))) == 4096
    _refused(encode_tensor_list([_SMALL] * 4097), "at most 4096 tensors")


def test_expansion_is_bounded() -> None:
    far = b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85"  # shape (2**40,), stride (0,)
    _refused(_listed(_tensor(view=far)), "no more bytes than the stream")
    wide = _tensor(view=_ints(1 << 19) + _ints(0)) + b"q\x63"
    assert [len(t.data) for t in decode_tensor_list(_listed(wide, b"h\x63"))] == [1 << 19] * 2
    _refused(_listed(wide, b"h\x63h\x63"), "no more bytes than the stream")
