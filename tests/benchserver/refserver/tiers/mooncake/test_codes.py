"""A code of the library is never shown without what it means."""

from __future__ import annotations

import pytest

from benchserver.refserver.tiers.mooncake.codes import (
    ABSENT,
    INVALID,
    NO_ROOM,
    NOT_READY,
    meaning_of,
)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (NO_ROOM, "no segment of the store has room; mount more memory (segment_gb) "),
        (INVALID, "the store refused the arguments "),
        (NOT_READY, "the object is being replaced "),
        (ABSENT, "no such object "),
        (-900, "the master cannot be reached "),
        (-12345, "unknown error "),
    ],
)
def test_a_code_with_its_meaning(code: int, line: str) -> None:
    assert meaning_of(code) == f"{line}(Mooncake's code {code})"
