"""Chunk digests against hashlib over bytes that the test gathers itself."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import WorkCancelledError
from benchserver.kv.digest import chunk_digest, widen_bfloat16

NO_CANCEL = threading.Event()


def widened(page: bytes) -> bytes:
    """Return the float32 bytes of little-endian bfloat16: two zero bytes before each pair."""
    return b"".join(b"\0\0" + page[i : i + 2] for i in range(0, len(page), 2))


def test_widening_is_exact_for_every_pattern() -> None:
    halves = np.arange(1 << 16, dtype="<u2")
    wide = widen_bfloat16(halves.view(np.uint8))
    assert wide.tobytes() == widened(halves.tobytes())
    values = wide.view("<f4")
    assert float(values[0x3F80]) == 1.0
    assert float(values[0xC040]) == -3.0
    assert np.isinf(values[0x7F80])
    # Quiet and signalling NaNs keep their payload.
    assert wide[0x7F81] == 0x7F810000
    assert wide[0xFFFF] == 0xFFFF0000


def test_known_digests() -> None:
    empty_page = np.zeros((1, 1, 3), np.uint8)
    empty_page[0, 0] = np.frombuffer(b"abc", np.uint8)
    assert chunk_digest([empty_page], [False], [0], NO_CANCEL) == "900150983cd24fb0d6963f7d28e17f72"
    one = np.frombuffer(b"\x80\x3f", np.uint8).reshape(1, 1, 2)
    # MD5 of 00 00 80 3f, which is 1.0 as float32.
    assert chunk_digest([one], [True], [0], NO_CANCEL) == hashlib.md5(b"\0\0\x80\x3f").hexdigest()


@given(data=st.data())
def test_layers_then_planes_then_blocks_in_table_order(data: st.DataObject) -> None:
    blocks = data.draw(st.integers(1, 5))
    layers: list[npt.NDArray[np.uint8]] = []
    widen: list[bool] = []
    for _ in range(data.draw(st.integers(1, 3))):
        planes, size = data.draw(st.integers(1, 2)), 2 * data.draw(st.integers(1, 4))
        raw = data.draw(st.binary(min_size=planes * blocks * size, max_size=planes * blocks * size))
        layers.append(np.frombuffer(raw, np.uint8).reshape(planes, blocks, size))
        widen.append(data.draw(st.booleans()))
    table = data.draw(st.permutations(range(blocks)).map(lambda ids: ids[: len(ids) // 2 + 1]))
    md5 = hashlib.md5()
    for layer, wide in zip(layers, widen, strict=True):
        for plane in range(layer.shape[0]):
            for block in table:
                page = layer[plane, block].tobytes()
                md5.update(widened(page) if wide else page)
    assert chunk_digest(layers, widen, table, NO_CANCEL) == md5.hexdigest()


def test_every_kind_of_order_matters() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.integers(0, 256, (2, 3, 4), np.uint8) for _ in range(2)]
    flags = [False, False]
    digests = {
        chunk_digest(layers, flags, [0, 1], NO_CANCEL),
        chunk_digest(layers, flags, [1, 0], NO_CANCEL),
        chunk_digest(layers[::-1], flags, [0, 1], NO_CANCEL),
        chunk_digest([layer[::-1] for layer in layers], flags, [0, 1], NO_CANCEL),
        chunk_digest(layers, [True, True], [0, 1], NO_CANCEL),
    }
    assert len(digests) == 5


def test_cancel_ends_it() -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(WorkCancelledError):
        chunk_digest([np.zeros((1, 1, 2), np.uint8)], [False], [0], cancel)
