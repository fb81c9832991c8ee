"""What the pages of one rank's pool must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchserver.kv.content import PoolContent, group_patterns
from shapespec import parse_shape_spec

SPEC = parse_shape_spec("(2,8,2,1,4):float16:2;(1,8,2,1,8):uint8:3")
CONTENT = PoolContent(spec=SPEC, patterns=group_patterns(bytes(16), SPEC, 4), rank=2, ranks=3)


def test_each_layer_has_the_pattern_of_its_group() -> None:
    assert [CONTENT.pattern_of(layer).index for layer in range(5)] == [0, 0, 1, 1, 1]
    assert [pattern.layers for pattern in CONTENT.patterns] == [range(2), range(2, 5)]
    assert [pattern.group for pattern in CONTENT.patterns] == list(SPEC.groups)


def test_groups_and_roots_have_other_tables() -> None:
    first, second = (
        group_patterns(root, parse_shape_spec("(1,8,2,1,8):uint8:1;(1,8,2,1,8):uint8:1"), 4)
        for root in (bytes(16), bytes(15) + b"1")
    )
    tables = {pattern.words.tobytes() for pattern in (*first, *second)}
    assert len(tables) == 4


def test_keys_are_those_of_the_rank_and_layer() -> None:
    keys = CONTENT.keys(3, (7, 8))
    assert keys.shape == (1, 2 * CONTENT.blocks_per_chunk) == (1, 8)
    expected = CONTENT.patterns[1].page_keys((7, 8), rank=2, layer=3)
    assert np.array_equal(keys, expected)
    for other in (CONTENT.keys(4, (7, 8)), replace(CONTENT, rank=1).keys(3, (7, 8))):
        assert not np.isin(other, keys).any()
