"""Where tensors and guards lie."""

from __future__ import annotations

import pytest

from benchserver.kv.layout import GUARD_BYTES, TensorPlace, guard_spans, place_tensors
from shapespec import (
    parse_shape_spec,
    tensor_bytes,
)
from tests.pools import CLASSIC

MLA = "(1,24,2,1,8):bfloat16:3"
ODD = "(1,24,1,1,132):uint8:1"
TINY = "(2,24,1,1,3):int8:2"
MIXED = "(2,24,2,2,4):float32:1;(1,24,2,1,292):uint8:2"
SPECS = (CLASSIC, MLA, ODD, TINY, MIXED)


def test_places_of_a_known_spec() -> None:
    # 2 planes x 24 blocks x 16 bytes, three tensors of 584-byte pages behind.
    spec = parse_shape_spec("(2,24,2,1,4):float16:1;(1,24,2,1,292):uint8:2")
    places, size = place_tensors(spec)
    assert places == (
        TensorPlace(layer=0, group=0, offset=4096, nbytes=768),
        TensorPlace(layer=1, group=1, offset=12288, nbytes=14016),
        TensorPlace(layer=2, group=1, offset=32768, nbytes=14016),
    )
    assert size == 53248


@pytest.mark.parametrize("text", SPECS)
def test_tensors_are_aligned_and_guarded(text: str) -> None:
    spec = parse_shape_spec(text)
    places, size = place_tensors(spec)
    assert [p.layer for p in places] == list(range(spec.num_layers))
    end = 0
    for place in places:
        assert place.nbytes == tensor_bytes(spec.groups[place.group])
        assert place.offset % 4096 == 0
        assert place.offset - end >= GUARD_BYTES
        end = place.offset + place.nbytes
    assert size - end >= GUARD_BYTES


@pytest.mark.parametrize("text", SPECS)
def test_guards_are_all_that_lies_beside_the_tensors(text: str) -> None:
    places, size = place_tensors(parse_shape_spec(text))
    spans = guard_spans(places, size)
    tensors = [(place.offset, place.offset + place.nbytes) for place in places]
    in_order = [span for pair in zip(spans, tensors, strict=False) for span in pair] + spans[-1:]
    assert len(spans) == len(tensors) + 1
    assert [start for start, _ in in_order] == [0, *(end for _, end in in_order[:-1])]
    assert in_order[-1][1] == size
