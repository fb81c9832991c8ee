"""Files of the kernel: text, numbers, and what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.environment.reading import field_in, kib_in, not_known, read_number, read_text


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


def test_fields_of_a_text() -> None:
    text = "no field\nVmHWM:\t  12 kB\nmodel name\t: A: B\nVmHWM: 13 kB\nOdd: x kB\n"
    assert field_in(text, "model name") == "A: B"
    assert field_in(text, "no field") == field_in(text, "missing") == ""
    assert kib_in(text, "VmHWM") == 12 * 1024
    assert kib_in(text, "Odd") is kib_in(text, "missing") is None


def test_what_is_not_known_says_why() -> None:
    assert not_known("nobody looked") == "not known: nobody looked"
