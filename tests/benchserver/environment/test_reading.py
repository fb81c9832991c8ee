"""Files of the kernel: text, numbers, and what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.environment.reading import read_number, read_text


def test_a_file_is_read_as_far_as_it_is_expected_to_go(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc\xff")
    assert read_text(path) == "abc�"
    assert read_text(path, 2) == "ab"
    assert read_text(tmp_path) == read_text(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("text", "number"), [("12\n", 12), ("max\n", None), ("", None), ("-1", None), ("1 2", None)]
)
def test_a_number_is_one(tmp_path: Path, text: str, number: int | None) -> None:
    path = tmp_path / "number"
    path.write_text(text)
    assert read_number(path) == number
    assert read_number(tmp_path / "missing") is None
