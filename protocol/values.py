"""Tests on decoded values, and the error for one that is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from protocol.errors import RemoteProtocolError

_SHOWN_CHARS = 60
"""How much of an offending value an error shows."""

_MAX_SHOWN_BITS = 512


def clip(value: Any) -> str:
    """Show any value in one line of plain ASCII, cut to a readable length.

    However large or deep it is, no more of it is looked at than is shown.
    """
    shown = ""
    for piece in _pieces(value):
        shown += piece
        if len(shown) > _SHOWN_CHARS:
            return shown[: _SHOWN_CHARS - 3] + "..."
    return shown


def _pieces(value: Any) -> Iterator[str]:
    """Yield what `ascii` would show, in pieces that are small."""
    if isinstance(value, (str, bytes)):
        shown = ascii(value[: _SHOWN_CHARS + 1])
        # What is cut off ends without its quote.
        yield shown if len(value) <= _SHOWN_CHARS else shown[:-1]
    elif isinstance(value, (list, tuple)):
        yield "[" if isinstance(value, list) else "("
        for index, item in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(item)
        yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
    elif isinstance(value, dict):
        yield "{"
        for index, (name, item) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _pieces(name)
            yield ": "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        yield f"an integer of {value.bit_length()} bits"
    else:
        yield ascii(value)


def refuse(expected: str, value: Any) -> RemoteProtocolError:
    """Build the error for a value of another type than `expected`."""
    return RemoteProtocolError(f"got {clip(value)}, expected {expected}")


def is_int(value: Any) -> TypeGuard[int]:
    """Tell an integer from a bool, which Python counts as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_int_list(value: Any) -> TypeGuard[list[int]]:
    """Tell whether the value is a list of integers."""
    return isinstance(value, list) and all(is_int(item) for item in value)
