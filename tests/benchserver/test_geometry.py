"""Divisions of tokens into chunks and blocks: by hand, and as laws that must hold for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.geometry import Geometry
from shapespec import parse_shape_spec

SPEC = parse_shape_spec("(2,128,16,2,8):float16:2;(1,128,16,1,8):float16:3")
TOKEN_BYTES = 2 * 2 * 8 * 2 * 2 + 1 * 1 * 8 * 2 * 3


def test_a_request_by_hand() -> None:
    geometry = Geometry(spec=SPEC, chunk_tokens=64, num_tokens=200)
    assert geometry.chunks == 3
    assert geometry.end == 192
    assert geometry.whole_blocks
    assert geometry.blocks_per_chunk == 4
    assert geometry.blocks == 12
    assert geometry.chunk_bytes == 64 * TOKEN_BYTES
    assert geometry.nbytes == 192 * TOKEN_BYTES


def test_less_than_a_chunk_is_none() -> None:
    geometry = Geometry(spec=SPEC, chunk_tokens=64, num_tokens=63)
    assert (geometry.chunks, geometry.end, geometry.blocks, geometry.nbytes) == (0, 0, 0, 0)


@pytest.mark.parametrize(("chunk_tokens", "whole"), [(16, True), (48, True), (24, False)])
def test_a_chunk_of_no_whole_blocks_is_told(chunk_tokens: int, whole: bool) -> None:
    assert Geometry(spec=SPEC, chunk_tokens=chunk_tokens, num_tokens=96).whole_blocks is whole


@pytest.mark.parametrize(("skip", "blocks"), [(0, 0), (15, 0), (16, 1), (40, 2), (192, 12)])
def test_only_blocks_that_are_skipped_whole_are_not_moved(skip: int, blocks: int) -> None:
    geometry = Geometry(spec=SPEC, chunk_tokens=64, num_tokens=192)
    assert geometry.skipped_blocks(skip) == blocks
    assert geometry.bytes_behind(skip) == (12 - blocks) * 16 * TOKEN_BYTES


@given(st.integers(1, 64), st.integers(1, 4096))
def test_the_parts_add_up(blocks_per_chunk: int, num_tokens: int) -> None:
    geometry = Geometry(spec=SPEC, chunk_tokens=16 * blocks_per_chunk, num_tokens=num_tokens)
    assert geometry.blocks_per_chunk == blocks_per_chunk
    assert geometry.blocks == geometry.chunks * blocks_per_chunk
    assert geometry.end <= num_tokens < geometry.end + geometry.chunk_tokens
    assert geometry.nbytes == geometry.blocks * 16 * TOKEN_BYTES
