"""Names in /dev/shm: swept when nobody holds their lock, whatever pid they carry."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from benchserver import shmnames
from benchserver.shmnames import (
    Beside,
    counter_of,
    event_of,
    give_name,
    made_for,
    open_unnamed,
    remove_beside,
    segment_name,
    sweep_stale,
    take_name,
    write_mark,
)

DEAD = 4194303
"""No process of a Linux with its default limits has this pid."""

NAME = f"bench_server_{DEAD}_0123456789_r255"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a folder in the place of /dev/shm."""
    monkeypatch.setattr(shmnames, "SHM_DIR", tmp_path)
    return tmp_path


@pytest.mark.parametrize("pid", [DEAD, os.getpid(), os.getppid()], ids=["dead", "us", "parent"])
def test_what_nobody_holds_is_swept_whoever_has_its_pid_now(folder: Path, pid: int) -> None:
    name = f"bench_server_{pid}_0123456789_r255"
    (folder / name).touch()
    assert sweep_stale() == (name,)
    assert os.listdir(folder) == []
    assert sweep_stale() == ()


def test_what_is_held_stays_though_its_pid_looks_dead(folder: Path) -> None:
    descriptor = open_unnamed()
    assert os.listdir(folder) == []
    give_name(descriptor, NAME)
    assert sweep_stale() == ()
    assert os.listdir(folder) == [NAME]
    os.close(descriptor)
    assert sweep_stale() == (NAME,)


def test_other_names_stay(folder: Path) -> None:
    kept = [
        f"bench_server_{DEAD}_abc_r0.bak",
        f"bench_server_{DEAD}_ABC_r0",
        f"bench_server_{DEAD}_abc",
        f"xbench_server_{DEAD}_abc_r0",
        "bench_server_\u0661_abc_r0",
        "lmcache_l1_pool_x",
    ]
    for name in kept:
        (folder / name).touch()
    assert sweep_stale() == ()
    assert sorted(os.listdir(folder)) == sorted(kept)


def make_link(path: Path) -> None:
    path.with_name("precious").write_text("mine")
    path.symlink_to(path.with_name("precious"))


def make_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # a path to bind to has 107 characters at most
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


# A pipe that is opened for reading would wait for its writer, for ever.
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_link, make_socket])
def test_what_is_no_file_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    make(folder / NAME)
    before = set(os.listdir(folder))
    assert sweep_stale() == ()
    # As if it had come between the look and the opening.
    monkeypatch.setattr(shmnames, "_names_here", lambda: iter([NAME]))
    assert sweep_stale() == ()
    assert set(os.listdir(folder)) == before


def test_names_that_go_meanwhile_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmnames, "_names_here", lambda: iter([NAME]))
    assert sweep_stale() == ()


def test_a_start_looks_at_so_many_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmnames, "_MAX_SWEPT", 3)
    for number in range(5):
        (folder / f"bench_server_{DEAD}_abc_r{number}").touch()
    assert [len(sweep_stale()) for _ in range(3)] == [3, 2, 0]


def test_no_shared_memory_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmnames, "SHM_DIR", Path("/nonexistent"))
    assert sweep_stale() == ()
    with pytest.raises(FileNotFoundError):
        open_unnamed()


def test_a_name_carries_our_pid() -> None:
    assert segment_name("00ff", 3) == f"bench_server_{os.getpid()}_00ff_r3"
    take_name("not there")


@pytest.mark.parametrize(
    ("name", "counter", "event"),
    [
        ("torch_4660_77_0", True, False),
        ("cuda.shm.0.1234.1", False, True),
        ("cuda.shm.3e8.1234.12", False, True),
        ("torch_46600_77_0", False, False),
        ("torch_4660_77", False, False),
        ("torch_4660_x_0", False, False),
        ("cuda.shm.0.12349.1", False, False),
        ("cuda.shm.1234.1", False, False),
        ("cudaxshm.0.1234.1", False, False),
        ("bench_server_4660_0_r0", False, False),
    ],
)
def test_whose_a_file_of_torch_or_the_driver_is(name: str, counter: bool, event: bool) -> None:
    assert counter_of(4660, name) is counter
    assert event_of(4660, name) is event
    assert made_for(4660, name) is (counter or event)


def beside(folder: Path, name: str) -> Beside:
    (folder / name).touch()
    return Beside((folder / name).stat().st_ino, name)


def test_a_mark_takes_along_what_it_lists_and_no_file_with_the_same_pid(folder: Path) -> None:
    ours = [beside(folder, f"cuda.shm.0.{DEAD:x}.1"), beside(folder, f"torch_{DEAD}_7_0")]
    # A living process of another container, say an engine, has the same pid.
    theirs = beside(folder, f"torch_{DEAD}_8_0")
    descriptor = open_unnamed()
    write_mark(descriptor, [theirs, theirs, theirs])
    write_mark(descriptor, ours)
    give_name(descriptor, NAME)
    assert sweep_stale() == ()
    assert len(os.listdir(folder)) == 4
    os.close(descriptor)
    assert sweep_stale() == (NAME,)
    assert os.listdir(folder) == [theirs.name]


def test_a_name_that_another_process_has_made_anew_stays(folder: Path) -> None:
    # The driver numbers its files: the same pid in another container gets the same name.
    name = f"cuda.shm.0.{DEAD:x}.1"
    file = beside(folder, name)
    another = Beside(file.inode + 1, name)
    remove_beside([another, Beside(1, "gone")])
    assert os.listdir(folder) == [name]
    remove_beside([file])
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "content",
    [
        b"{ino} precious\n",
        b"{ino} ../precious\n",
        b"{ino} torch_1_1_1\n",  # of another pid
        b"\xff\xfe {ino}\n",
        b"{ino}{ino}{ino} precious\n",
    ],
)
@pytest.mark.parametrize("head", [b"bench-server mark 1\n", b""])
def test_a_file_that_anybody_wrote_takes_nothing_else_along(
    folder: Path, head: bytes, content: bytes
) -> None:
    kept = [beside(folder, "precious"), beside(folder, "torch_1_1_1")]
    for file in kept:
        text = head + content.replace(b"{ino}", str(file.inode).encode())
        (folder / NAME).write_bytes(text)
        assert sweep_stale() == (NAME,)
    assert sorted(os.listdir(folder)) == ["precious", "torch_1_1_1"]


def test_a_segment_lists_nothing(folder: Path) -> None:
    file = beside(folder, f"torch_{DEAD}_7_0")
    (folder / NAME).write_bytes(f"{file.inode} {file.name}\n".encode())
    assert sweep_stale() == (NAME,)
    assert os.listdir(folder) == [file.name]
