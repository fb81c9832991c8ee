"""Pages in host memory that differ, on arrays made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.kv.blocks import Window
from benchserver.kv.host import compare
from benchserver.kv.host.compare import bad_pages, not_filled, same_bytes, table_runs, wrong_in_runs
from benchserver.kv.pattern import CANARY_BYTE, POISON_BYTE, GroupPattern
from shapespec import parse_shape_spec


def pattern_of(text: str) -> GroupPattern:
    group = parse_shape_spec(text).groups[0]
    return GroupPattern(b"root of this run", group, index=0, first_layer=2, blocks_per_chunk=2)


@pytest.mark.parametrize("text", ["(2,4,4,1,8):float16:2", "(2,4,1,1,11):uint8:2"])
@pytest.mark.parametrize("slice_bytes", [1, 100, 1 << 20])
def test_bad_pages_are_found_in_every_slice(
    monkeypatch: pytest.MonkeyPatch, text: str, slice_bytes: int
) -> None:
    monkeypatch.setattr(compare, "SLICE_BYTES", slice_bytes)
    pattern = pattern_of(text)
    keys = pattern.page_keys(range(1, 6), rank=0, layer=2)
    pages = np.bitwise_xor(pattern.words, pattern.key_words(keys))
    assert bad_pages(pages, pattern, keys).shape == (0, 2)
    for where in ((0, 0), (0, 9), (1, 4)):
        pages.view(np.uint8)[where][where[1]] ^= 1
    assert bad_pages(pages, pattern, keys).tolist() == [[0, 0], [0, 9], [1, 4]]


WINDOWS = {
    "source": Window(first=1, count=6, block_ids=(3, 1, 6, 2, 5, 4), canaries=()),
    "destination": Window(first=1, count=8, block_ids=(3, 2, 7, 5, 6, 4), canaries=(1, 8)),
}


@pytest.mark.parametrize("text", ["(2,9,4,1,8):float16:2", "(1,9,1,1,11):uint8:2"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("skipped", range(6))
def test_columns_are_those_of_the_table_and_skipped_blocks_are_not_looked_at(
    text: str, window: Window, skipped: int
) -> None:
    """Each page in turn is wrong: it is found where the table has it, or is skipped."""
    pattern = pattern_of(text)
    keys = pattern.page_keys(range(1, 4), rank=0, layer=2)
    content = np.bitwise_xor(pattern.words, pattern.key_words(keys)).view(np.uint8)
    good = np.zeros((content.shape[0], 9, content.shape[2]), np.uint8)
    good[:, list(window.block_ids)] = content
    for plane in range(good.shape[0]):
        for column, block in enumerate(window.block_ids):
            layer = good.copy()
            layer[plane, block, -1] ^= 1
            found = wrong_in_runs(layer, pattern, keys, table_runs(window, skipped))
            assert found.tolist() == ([[plane, column]] if column >= skipped else [])


def test_blocks_side_by_side_are_one_run() -> None:
    source, destination = WINDOWS.values()
    (run,) = table_runs(source)
    assert (run.blocks, run.columns.tolist()) == (slice(1, 7), [1, 3, 0, 5, 4, 2])
    runs = [(run.blocks, run.columns.tolist()) for run in table_runs(destination, 2)]
    assert runs == [(slice(4, 8), [5, 3, 4, 2])]
    runs = [(run.blocks, run.columns.tolist()) for run in table_runs(destination, 3)]
    assert runs == [(slice(4, 7), [5, 3, 4])]
    apart = Window(first=1, count=6, block_ids=(6, 1, 2, 4), canaries=(3, 5))
    runs = [(run.blocks, run.columns.tolist()) for run in table_runs(apart)]
    assert runs == [(slice(1, 3), [1, 2]), (slice(4, 5), [3]), (slice(6, 7), [0])]


@pytest.mark.parametrize("large", [8, 9])
@pytest.mark.parametrize("byte", [CANARY_BYTE, POISON_BYTE])
def test_pages_that_are_not_filled(monkeypatch: pytest.MonkeyPatch, large: int, byte: int) -> None:
    """The same by either way: pages of 8 bytes are large, or not."""
    monkeypatch.setattr(compare, "_LARGE_PAGE_BYTES", large)
    layer = np.full((2, 6, 8), byte, np.uint8)
    blocks = (4, 1, 5)
    assert not_filled(layer, blocks, byte).shape == (0, 2)
    layer[0, 2] = 0  # not asked for
    layer[1, 1, 7] = 0
    layer[1, 5, 0] ^= 1
    layer[0, 5] = 0
    found = not_filled(layer, blocks, byte)
    assert sorted(found.tolist()) == [[0, 2], [1, 1], [1, 2]]


@given(data=st.binary(min_size=1, max_size=64), at=st.integers(0, 63))
def test_same_bytes(data: bytes, at: int) -> None:
    first = np.frombuffer(data, np.uint8)
    second = first.copy()
    assert same_bytes(first, second)
    second[at % len(data)] ^= 1
    assert not same_bytes(first, second)
    assert not same_bytes(first, first[:-1])


def test_same_bytes_of_what_does_not_lie_together() -> None:
    with pytest.raises(ValueError, match="C-contiguous"):
        same_bytes(np.zeros((2, 4), np.uint8)[:, ::2], np.zeros((2, 2), np.uint8))
