"""What torch or the CUDA driver says of an error, in one line."""

from __future__ import annotations

from benchserver.errors import one_line

_SHOWN_CHARS = 200


def reason_of(error: BaseException) -> str:
    """Return what torch or the driver says first; the lines after it are advice on debugging."""
    lines = str(error).strip().splitlines()
    return one_line(lines[0] if lines else type(error).__name__, _SHOWN_CHARS)
