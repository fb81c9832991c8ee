"""JSON out of a file that somebody names."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver import jsonfile
from benchserver.errors import UsageError


def test_it_returns_what_a_file_holds(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert jsonfile.read_json_file("--run a", str(tmp_path / "a.json")) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b"\xff\xfe", "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b"1" * 100, "longer than 64 bytes, so not our report"),
    ],
)
def test_what_is_none_is_said_in_one_line(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content.isdigit():
        monkeypatch.setattr(jsonfile, "MOST_BYTES", 64)
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UsageError, match=f"^--run a: {said}") as caught:
        jsonfile.read_json_file("--run a", str(tmp_path / "a.json"))
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--run a: not a file"):
        jsonfile.read_json_file("--run a", str(tmp_path))
    with pytest.raises(UsageError, match="--run a: No such file"):
        jsonfile.read_json_file("--run a", str(tmp_path / "none"))
