"""TOML files: read, or refused in one line."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchserver.cli import tomlfile
from benchserver.cli.tomlfile import read_toml
from benchserver.errors import UsageError


def test_a_document(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[load]\nrate = 5\nworkload = "é"\n', encoding="utf-8")
    assert read_toml(str(path)) == {"load": {"rate": 5, "workload": "é"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"= 3", "is not TOML: "),
        (b"a = 1\na = 2", "is not TOML: "),
        (b"a = '\xff'", "is not TOML: "),
        (b"a = " + b"9" * 5000, "is not TOML: "),
        (b"#" * (1 << 20) + b"#", "is longer than 1048576 bytes"),
    ],
)
def test_what_is_none(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_toml(str(path))
    assert str(caught.value).startswith(f"{path} {expected}")
    assert "\n" not in str(caught.value)


def test_a_pipe_is_read_if_somebody_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(path.write_text, "rate = 5\n")
        assert read_toml(str(path)) == {"rate": 5}
        writing.result()
    monkeypatch.setattr(tomlfile, "_WRITER_WITHIN_MS", 1)
    with pytest.raises(UsageError, match="pipe: nobody writes to this pipe"):
        read_toml(str(path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        read_toml(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="Is a directory"):
        read_toml(str(tmp_path))
