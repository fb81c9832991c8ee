"""Where the HTTP token comes from, and that the process list does not show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchserver.cli.httptoken import read_token
from benchserver.errors import UsageError

ROOT = Path(__file__).parents[3]

HIDING = """
import sys
from pathlib import Path
from benchserver.cli.httptoken import hide_from_process_list
hide_from_process_list(sys.argv[1])
print(Path("/proc/self/cmdline").read_bytes())
"""


def test_a_file_of_one_line() -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        read_token(None, "/nowhere/token")
    with pytest.raises(UsageError, match="both given"):
        read_token("a", "b")
    with pytest.raises(UsageError, match="is empty"):
        read_token("", None)
    assert read_token(None, None) == ""
    assert read_token("a", None) == "a"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"a\nb\n", b"a" * 9000])
def test_a_file_that_holds_no_token(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="expected one line, the token"):
        read_token(None, str(path))


def test_a_file_without_a_line_end_and_an_empty_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"abc")
    assert read_token(None, str(path)) == "abc"
    path.write_bytes(b"\n")
    with pytest.raises(UsageError, match="is empty"):
        read_token(None, str(path))


def test_an_argument_is_overwritten_where_others_see_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HIDING, "hunter2-token", "beside"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    assert "hunter2" not in ended.stdout
    assert f"{'x' * len('hunter2-token')}\\x00beside" in ended.stdout
