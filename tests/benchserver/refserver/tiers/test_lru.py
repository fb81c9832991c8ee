"""What is the oldest, and what goes."""

from __future__ import annotations

import pytest

from benchserver.refserver.tiers.lru import Lru

pytestmark = pytest.mark.usefixtures("leak_free")


def test_lru() -> None:
    held: Lru[str, int] = Lru()
    assert held.oldest() is None
    assert held.use("a") is None
    assert held.drop("a") is None
    for number, name in enumerate("abc"):
        assert held.put(name, number, 10) is None
    assert held.use("a") == 0
    assert held.put("b", 7, 5) == 1
    assert (held.oldest(), held.used_bytes, len(held)) == ("c", 25, 3)
    assert "c" in held
    assert held.evict_to(25) == []
    assert held.evict_to(24) == [("c", 2)]
    assert held.drop("b") == 7
    assert held.used_bytes == 10
    assert held.evict_to(0) == [("a", 0)]
    assert held.used_bytes == len(held) == 0
