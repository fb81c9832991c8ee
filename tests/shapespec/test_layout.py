"""The arithmetic, against figures worked out by hand, then against a second way to count."""

from itertools import chain
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shapespec
from shapespec import layout
from shapespec.dtypes import DTYPES
from shapespec.parser import parse_shape_spec
from shapespec.spec import GroupSpec, ShapeSpec

MIB = 1 << 20
GIB = 1 << 30

DEFAULT = parse_shape_spec("(2,1024,16,8,128):float16:32")
MLA = parse_shape_spec("(1,512,64,1,576):bfloat16:61")
MIXED = parse_shape_spec("(2,10,4,3,5):float32:2;(1,10,4,1,7):uint8:3;(2,10,4,1,2):int8:1")


def test_default_spec() -> None:
    (group,) = DEFAULT.groups
    assert layout.planes(group) == 2
    assert layout.hidden_size(group) == 1024
    assert layout.tensor_shape(group) == (2, 1024, 16, 8, 128)
    assert layout.element_strides(group) == (16777216, 16384, 1024, 128, 1)
    assert layout.page_bytes(group) == 32768
    assert layout.tensor_bytes(group) == 64 * MIB
    assert layout.layer_token_bytes(group) == 4096
    assert layout.token_bytes(DEFAULT) == 131072
    assert layout.block_bytes(DEFAULT) == 2 * MIB
    assert layout.chunk_bytes(DEFAULT, 256) == 32 * MIB
    assert layout.pool_bytes(DEFAULT) == 2 * GIB
    assert layout.layer_indices(DEFAULT) == (range(0, 32),)


def test_mla_spec() -> None:
    (group,) = MLA.groups
    assert layout.planes(group) == 1
    assert layout.hidden_size(group) == 576
    assert layout.tensor_shape(group) == (512, 64, 576)
    assert layout.element_strides(group) == (36864, 576, 1)
    assert layout.page_bytes(group) == 73728
    assert layout.tensor_bytes(group) == 36 * MIB
    assert layout.layer_token_bytes(group) == 1152
    assert layout.token_bytes(MLA) == 70272
    assert layout.block_bytes(MLA) == 4497408
    assert layout.chunk_bytes(MLA, 256) == 17989632
    assert layout.pool_bytes(MLA) == 2302672896


def test_mla_with_several_heads_flattens_them() -> None:
    (group,) = parse_shape_spec("(1,10,4,3,5):float32:1").groups
    assert layout.tensor_shape(group) == (10, 4, 15)
    assert layout.element_strides(group) == (60, 15, 1)


def test_mixed_spec() -> None:
    # a token, layer by layer: 2 planes * 15 * 4 B = 120; 1 * 7 * 1 B = 7; 2 * 2 * 1 B = 4
    assert [layout.layer_token_bytes(group) for group in MIXED.groups] == [120, 7, 4]
    assert [layout.page_bytes(group) for group in MIXED.groups] == [240, 28, 8]
    assert [layout.tensor_bytes(group) for group in MIXED.groups] == [4800, 280, 160]
    assert layout.token_bytes(MIXED) == 265  # 2*120 + 3*7 + 1*4
    assert layout.block_bytes(MIXED) == 1060
    assert layout.chunk_bytes(MIXED, 8) == 2120
    assert layout.chunk_bytes(MIXED, 1) == 265
    assert layout.pool_bytes(MIXED) == 10600
    assert layout.layer_indices(MIXED) == (range(0, 2), range(2, 5), range(5, 6))


@pytest.mark.parametrize("chunk_tokens", [0, -1])
def test_a_chunk_holds_at_least_one_token(chunk_tokens: int) -> None:
    with pytest.raises(ValueError) as caught:
        layout.chunk_bytes(DEFAULT, chunk_tokens)
    assert str(caught.value) == f"chunk_tokens: got {chunk_tokens}, expected at least 1"


def test_the_largest_spec_is_exact() -> None:
    size = 2147483647
    spec = parse_shape_spec(f"(2,{size},{size},{size},{size}):float32:4096")
    assert layout.pool_bytes(spec) == 2 * size**4 * 4 * 4096


@st.composite
def shape_specs(draw: st.DrawFn) -> ShapeSpec:
    small = st.integers(min_value=1, max_value=300)
    group = st.builds(
        GroupSpec,
        kv_size=st.integers(min_value=1, max_value=2),
        num_blocks=st.just(draw(small)),
        block_size=st.just(draw(small)),
        num_heads=small,
        head_size=small,
        dtype=st.sampled_from(list(DTYPES.values())),
        layers=small,
    )
    return ShapeSpec(groups=tuple(draw(st.lists(group, min_size=1, max_size=5))))


@given(shape_specs(), st.integers(min_value=1, max_value=64))
def test_the_units_add_up(spec: ShapeSpec, blocks: int) -> None:
    tensors = sum(group.layers * layout.tensor_bytes(group) for group in spec.groups)
    assert layout.pool_bytes(spec) == tensors
    chunk = layout.chunk_bytes(spec, blocks * spec.block_size)
    assert chunk == blocks * layout.block_bytes(spec)
    pages = sum(g.layers * layout.planes(g) * layout.page_bytes(g) for g in spec.groups)
    assert layout.block_bytes(spec) == pages


@given(shape_specs())
def test_shape_and_strides_describe_the_tensor(spec: ShapeSpec) -> None:
    for group in spec.groups:
        shape, strides = layout.tensor_shape(group), layout.element_strides(group)
        assert prod(shape) * group.dtype.item_bytes == layout.tensor_bytes(group)
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        assert last == prod(shape) - 1
        assert strides[-1] == 1


@given(shape_specs())
def test_layer_indices_count_every_layer_once(spec: ShapeSpec) -> None:
    ranges = layout.layer_indices(spec)
    assert [len(layers) for layers in ranges] == [group.layers for group in spec.groups]
    assert list(chain(*ranges)) == list(range(spec.num_layers))


def test_the_package_exports_what_it_lists() -> None:
    assert len(set(shapespec.__all__)) == len(shapespec.__all__)
    assert all(hasattr(shapespec, name) for name in shapespec.__all__)
