"""Tests on decoded values, and the error for one that is not what it should be."""

from __future__ import annotations

from typing import Any, TypeGuard

from protocol.errors import RemoteProtocolError

_SHOWN_CHARS = 60
"""How much of an offending value an error shows."""


def clip(value: Any) -> str:
    """Show any value in one line of plain ASCII, cut to a readable length."""
    try:
        shown = ascii(value)
    except RecursionError:
        # msgpack and JSON may nest deeper than the interpreter's stack can show.
        shown = f"a {type(value).__name__} that nests too deep to show"
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."


def refuse(expected: str, value: Any) -> RemoteProtocolError:
    """Build the error for a value of another type than `expected`."""
    return RemoteProtocolError(f"got {clip(value)}, expected {expected}")


def is_int(value: Any) -> TypeGuard[int]:
    """Tell an integer from a bool, which Python counts as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_int_list(value: Any) -> TypeGuard[list[int]]:
    """Tell whether the value is a list of integers."""
    return isinstance(value, list) and all(is_int(item) for item in value)
