"""A page needs a library that a plain installation does not have."""

from __future__ import annotations

import pytest

from benchserver.errors import UsageError
from benchserver.page import drawing


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing.require_drawing("--html")
    monkeypatch.setattr(drawing, "find_spec", lambda _: None)
    with pytest.raises(
        UsageError, match=r"--html needs matplotlib: pip install 'bench-server\[rep"
    ):
        drawing.require_drawing("--html")
