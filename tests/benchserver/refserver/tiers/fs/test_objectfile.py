"""One object in one file: written all or nothing, read or refused, removed if it is that one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchserver.refserver.tiers.framing import header_of
from benchserver.refserver.tiers.fs import objectfile
from benchserver.refserver.tiers.fs.objectfile import (
    CorruptError,
    FileIdentity,
    NewFile,
    Submitted,
    read_object,
    read_size,
    remove_if,
    write_object,
)
from benchserver.refserver.tiers.keyname import name_of
from benchserver.refserver.tiers.tier import TierError

pytestmark = pytest.mark.usefixtures("leak_free")

KEY, DATA = b"a key", memoryview(b"0123456789")


def new_file(folder: Path) -> NewFile:
    return NewFile(path=folder / name_of(KEY), temporary=folder / "temporary")


def written(folder: Path) -> Path:
    new = new_file(folder)
    write_object(new, KEY, DATA)
    assert new.submitted is Submitted.LANDED
    return new.path


def identity_of(path: Path) -> FileIdentity:
    status = path.lstat()
    return FileIdentity(status.st_dev, status.st_ino)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path, out = written(tmp_path), bytearray(len(DATA))
    assert path.read_bytes() == header_of(KEY, DATA) + DATA
    read_object(path, KEY, memoryview(out))
    assert out == DATA
    assert read_size(path) == path.stat().st_size
    assert list(tmp_path.iterdir()) == [path]


def fail(*_: object) -> None:
    raise OSError("planted")


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_write_that_fails_before_its_name_leaves_the_old_object(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, new = written(tmp_path), new_file(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match="planted"):
            write_object(new, KEY, memoryview(b"other"))
    assert new.submitted is Submitted.UNTOUCHED
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == header_of(KEY, DATA) + DATA


def test_a_name_that_may_not_last_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = new_file(tmp_path)
    monkeypatch.setattr(objectfile, "sync_directory", fail)
    with pytest.raises(OSError, match="planted"):
        write_object(new, KEY, DATA)
    assert new.submitted is Submitted.LOST
    assert not list(tmp_path.iterdir())


def test_what_is_not_the_object_is_corrupt_and_says_which_file_it_was(tmp_path: Path) -> None:
    path = written(tmp_path)
    sound = path.read_bytes()
    for damaged, reason in (
        (sound[:10], "the header is cut off"),
        (sound[:-1], "the header says"),
        (sound + b"!", "the header says"),
        (b"!" + sound[1:], "not one of our objects"),
        (sound[:-1] + b"!", "the payload is not what was written"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(CorruptError, match=reason) as caught:
            read_object(path, KEY, memoryview(bytearray(len(DATA))))
        assert caught.value.identity == identity_of(path)


def test_a_file_under_another_name_has_no_size(tmp_path: Path) -> None:
    other = written(tmp_path).rename(tmp_path / "other")
    with pytest.raises(CorruptError, match="another object's file"):
        read_size(other)


def test_a_reader_of_another_size_is_told(tmp_path: Path) -> None:
    with pytest.raises(TierError, match="the object has 10 bytes, its reader expects 9"):
        read_object(written(tmp_path), KEY, memoryview(bytearray(9)))


def test_what_is_no_file_is_corrupt_and_blocks_nobody(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(written(tmp_path))
    for path in (pipe, link, tmp_path):
        with pytest.raises(CorruptError, match="not a regular file") as caught:
            read_object(path, KEY, memoryview(bytearray(10)))
        assert caught.value.identity == identity_of(path)
    with pytest.raises(FileNotFoundError):
        read_size(tmp_path / "nothing")


def test_only_that_very_file_is_removed(tmp_path: Path) -> None:
    path = written(tmp_path)
    seen = identity_of(path)
    path.rename(tmp_path / "kept")
    path = written(tmp_path)
    assert not remove_if(path, seen)
    assert not remove_if(path, None)
    assert path.exists()
    assert remove_if(path, identity_of(path))
    assert not path.exists()
    assert remove_if(path, seen)  # nothing has that name
