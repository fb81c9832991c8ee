"""Exit codes, and texts of any origin as one printable line."""

from __future__ import annotations

import errno
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.errors import FatalError, HarnessError, UsageError, one_line, os_reason


def test_exit_codes() -> None:
    assert (HarnessError.exit_code, FatalError.exit_code, UsageError.exit_code) == (1, 1, 2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two\n\tlines \r\n", "two lines"),
        ("", ""),
        (ValueError("of an error\nwith lines"), "of an error with lines"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb\ufeff", "a\\u202eb\\ufeff"),
        ("surrogate \udc80", "surrogate \\udc80"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_one_line(text: object, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (OSError(errno.ENOSPC, ""), "No space left on device"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("Multiple exceptions:\n[Errno 111]"), "Multiple exceptions: [Errno 111]"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_os_reason(error: OSError, reason: str) -> None:
    assert os_reason(error) == reason


@pytest.mark.parametrize(("length", "ending"), [(400, "xxx"), (401, "...")])
def test_long_texts_are_cut(length: int, ending: str) -> None:
    line = one_line("x" * length)
    assert len(line) == 400
    assert line.endswith(ending)


@given(st.text(st.characters()), st.integers(10, 60))
def test_any_text_becomes_one_printable_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    line.encode()
