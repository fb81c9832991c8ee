from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.inline.envelope import MAX_TENSORS, decode_envelope, encode_envelope
from protocol.inline.tensor import InlineTensor

TENSOR = InlineTensor("float16", (2, 3), bytes(range(12)))


def test_the_map_is_what_057_reads() -> None:
    stream = encode_envelope([TENSOR])
    assert msgpack.unpackb(stream) == {
        "version": 1,
        "tensors": [{"dtype": "float16", "shape": [2, 3], "data": bytes(range(12))}],
    }


@given(st.lists(st.binary(max_size=64), max_size=5))
def test_what_is_written_is_read_back(datas: list[bytes]) -> None:
    tensors = [InlineTensor("uint8", (len(data),), data) for data in datas]
    assert decode_envelope(encode_envelope(tensors)) == tensors


def test_views_are_sent_as_their_bytes() -> None:
    view = memoryview(bytearray(range(12)))
    assert decode_envelope(encode_envelope([InlineTensor("uint8", (12,), view)])) == [
        InlineTensor("uint8", (12,), bytes(range(12)))
    ]


def test_too_many_tensors_are_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="65537 inline tensors, one message carries 65536"):
        encode_envelope([TENSOR] * (MAX_TENSORS + 1))


GOOD = {"dtype": "uint8", "shape": [2], "data": b"ab"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "expected a map of version and tensors"),
        ({"version": 1}, "expected a map of version and tensors"),
        ({"version": 1, "tensors": [], "more": 1}, "expected a map of version and tensors"),
        ({"version": 2, "tensors": []}, "version 2, expected 1"),
        ({"version": True, "tensors": []}, "version True, expected 1"),
        ({"version": 1, "tensors": {}}, "expected an array of at most 65536"),
        ({"version": 1, "tensors": [1]}, "inline tensor 0: got 1, expected a map of dtype"),
        ({"version": 1, "tensors": [GOOD, {**GOOD, "x": 1}]}, "inline tensor 1: got"),
        ({"version": 1, "tensors": [{**GOOD, "data": "ab"}]}, "data as bytes"),
        ({"version": 1, "tensors": [{**GOOD, "shape": [2.0]}]}, "shape as an array of integers"),
        ({"version": 1, "tensors": [{**GOOD, "shape": [3]}]}, "2 bytes of data, but uint8"),
        ({"version": 1, "tensors": [{**GOOD, "shape": [-2]}]}, "non-negative integers"),
        ({"version": 1, "tensors": [{**GOOD, "dtype": "int64"}]}, "dtype 'int64' is not one of"),
    ],
)
def test_another_map_is_refused(value: Any, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode_envelope(msgpack.packb(value))


@given(st.binary(max_size=200))
def test_any_bytes_give_tensors_or_a_refusal(stream: bytes) -> None:
    try:
        decode_envelope(stream)
    except RemoteProtocolError:
        return
