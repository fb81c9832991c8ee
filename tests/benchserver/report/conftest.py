"""What tests of reports share."""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Callable

import pytest


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.fixture
def set_size() -> Callable[[int, int, int], None]:
    """Return what gives a terminal another size."""
    return _set_size
