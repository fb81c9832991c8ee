"""An object's name outside this process: written down by hand, and unambiguous."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.keyname import NAME, key_bytes, name_of

pytestmark = pytest.mark.usefixtures("leak_free")
KEY = ObjectKey(b"\x01\x02", "model", 12, 3, "salt", 4)


def test_a_name_never_changes() -> None:
    """Files of an older server are found again: these bytes were written down by hand."""
    assert key_bytes(KEY).hex() == (
        "000000020102000000056d6f64656c00000002313200000001330000000473616c740000000134"
    )
    # b2sum -l 128 of the same bytes.
    assert name_of(key_bytes(KEY)) == "f9d26d7a6080e29717491b0ba3d81c8d"
    assert NAME.fullmatch(name_of(b""))


keys = st.builds(
    ObjectKey,
    st.binary(max_size=3),
    st.text("a1\ud800\0", max_size=3),
    st.integers(0, 12),
    st.integers(0, 12),
    st.text("a1\ud800\0", max_size=3),
    st.integers(0, 12),
)


@given(keys, keys)
def test_only_equal_keys_have_equal_bytes(one: ObjectKey, other: ObjectKey) -> None:
    assert (key_bytes(one) == key_bytes(other)) == (one == other)
    assert key_bytes(one) == key_bytes(replace(one))
