"""The dtypes of the wire, against those that a shape spec may name."""

import pytest

from protocol.dtypes import ITEM_BYTES
from shapespec.dtypes import DTYPES


def test_every_dtype_of_a_shape_spec_can_be_sent() -> None:
    """Neither package may import the other, so their tables are held together here."""
    assert dict(ITEM_BYTES) == {name: dtype.item_bytes for name, dtype in DTYPES.items()}


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ITEM_BYTES["half"] = 2  # type: ignore[index]
