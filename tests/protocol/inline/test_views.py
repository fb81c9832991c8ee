"""Contiguous views are slices of the stream, strided ones are gathered, within bounds."""

from __future__ import annotations

import pytest

from protocol.inline.reading import decode_tensor_list
from protocol.inline.tensor import InlineTensor
from tests.protocol.inline.streams import (
    SMALL,
    SMALL_STREAM,
    ints,
    listed,
    numel,
    refused,
    shorts,
    strided,
    tensor_of,
)


def test_data_of_a_contiguous_tensor_is_not_copied() -> None:
    (tensor,) = decode_tensor_list(SMALL_STREAM)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is SMALL_STREAM
    assert decode_tensor_list(memoryview(b"12" + SMALL_STREAM)[2:]) == [SMALL]


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((2, 3, 4), (12, 4, 1)), ((2, 1, 3, 1), (3, 99, 1, 77)), ((1, 1), (5, 5)), ((3, 0), (9, 9))],
)
def test_unit_and_neighbouring_axes_do_not_hide_contiguity(
    shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    stream = listed(strided(0, shape, stride))
    (tensor,) = decode_tensor_list(stream)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is stream
    assert tensor == InlineTensor("float16", shape, shorts(numel(shape)))


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
    (tensor,) = decode_tensor_list(listed(strided(offset, shape, stride)))
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
    refused(listed(strided(offset, shape, stride)))


def test_expansion_is_bounded() -> None:
    far = b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85"  # shape (2**40,), stride (0,)
    refused(listed(tensor_of(view=far)), "no more bytes than the stream")
    wide = tensor_of(view=ints(1 << 19) + ints(0)) + b"q\x63"
    assert [len(t.data) for t in decode_tensor_list(listed(wide, b"h\x63"))] == [1 << 19] * 2
    refused(listed(wide, b"h\x63h\x63"), "no more bytes than the stream")
