"""Whether charts can be drawn at all; loads nothing to tell that."""

from __future__ import annotations

from importlib.util import find_spec

from benchserver.errors import UsageError


def require_drawing(option: str) -> None:
    """Raise UsageError where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            f"{option} needs matplotlib: pip install 'bench-server[report]'; no other report does"
        )
