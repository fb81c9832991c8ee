"""The uses of an instance's memory."""

from __future__ import annotations

from benchserver.refserver.uses import UseCount


def test_memory_is_let_go_once_closed_and_unused() -> None:
    gone: list[int] = []
    uses = UseCount(lambda: gone.append(uses.count))
    with uses.in_use():
        uses.begin()
        uses.close()
        assert (uses.count, gone) == (2, [])
    assert gone == []
    uses.end()
    uses.close()
    assert gone == [0]
