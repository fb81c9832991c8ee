"""Digests of client tensors, against the definition written out by hand."""

from __future__ import annotations

import hashlib

import numpy as np

from benchserver.refserver.pages.checksums import (
    HashedLayer,
    aggregate_digests,
    blocks_in_range,
    id_ranges,
    layerwise_digests,
)
from benchserver.refserver.pages.layout import Format

CLASSICAL = np.arange(2 * 6 * 4, dtype=np.uint16).reshape(2, 6, 2, 1, 2)
MLA = np.arange(6 * 3, dtype=np.uint16).reshape(6, 1, 3)

LAYERS = [
    HashedLayer(tensor=CLASSICAL, form=Format.KV_FIRST_NHD, dtype="float16"),
    HashedLayer(tensor=MLA, form=Format.MLA, dtype="float16"),
]


def md5(*parts: bytes) -> str:
    return hashlib.md5(b"".join(parts)).hexdigest()


def test_a_digest_covers_all_keys_then_all_values_then_the_next_layer() -> None:
    want = [
        md5(CLASSICAL[0, 4].tobytes(), CLASSICAL[0, 1].tobytes(), CLASSICAL[1, 4].tobytes(),
            CLASSICAL[1, 1].tobytes(), MLA[4].tobytes(), MLA[1].tobytes()),
        md5(CLASSICAL[0, 4].tobytes(), CLASSICAL[1, 4].tobytes(), MLA[4].tobytes()),
    ]  # fmt: skip
    assert aggregate_digests(LAYERS, [4, 1, 4], 2) == want


def test_layerwise_digests_are_those_of_each_layer_alone() -> None:
    assert layerwise_digests(LAYERS, [2], 1) == {
        "layer_0": [md5(CLASSICAL[0, 2].tobytes(), CLASSICAL[1, 2].tobytes())],
        "layer_1": [md5(MLA[2].tobytes())],
    }


def test_bfloat16_is_hashed_as_float32() -> None:
    nan = np.array([0x7FC1, 0xFF80, 0x3F80], dtype=np.uint16).reshape(1, 1, 3)
    layer = HashedLayer(tensor=nan, form=Format.MLA, dtype="bfloat16")
    assert aggregate_digests([layer], [0], 1) == [md5(bytes.fromhex("0000c17f000080ff0000803f"))]


def test_range() -> None:
    assert blocks_in_range(6, [0, 5])
    assert not blocks_in_range(6, [6])
    assert not blocks_in_range(6, [-1])


def test_id_ranges_shorten_runs_of_three() -> None:
    assert id_ranges([1, 2, 3, 4, 5, 7, 8]) == [[1, 5], 7, 8]
    assert id_ranges([5, 3, 1, 2, 4]) == [5, 3, 1, 2, 4]
    assert id_ranges([]) == []
