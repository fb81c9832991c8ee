"""Text on its way out: nobody waits for a reader, and what is lost is said."""

from __future__ import annotations

import errno
import io
import os
import socket
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from benchserver.outlet import Outlet, outlet_for, outlet_to, write_now

LONG_S = 30.0
"""A deadline that never comes in a test that passes."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return a pipe's ends; who closes one puts something else in its place."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def fill(descriptor: int) -> int:
    """Fill a pipe, and return how many bytes it holds."""
    os.set_blocking(descriptor, False)
    count = 0
    try:
        while True:
            count += os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(descriptor, True)
        return count


def read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += os.read(descriptor, count - len(data))
    return data


def test_what_is_written_arrives_in_order(pipe: tuple[int, int]) -> None:
    outlet = outlet_to(pipe[1])
    for number in range(1000):
        outlet.line(f"line {number}")
    assert outlet.drain(LONG_S) == ""
    expected = "".join(f"line {number}\n" for number in range(1000)).encode()
    assert read(pipe[0], len(expected)) == expected


def test_a_stopped_reader_stops_nobody(pipe: tuple[int, int]) -> None:
    fill(pipe[1])
    outlet = outlet_to(pipe[1])
    outlet.line("RESULT")
    assert outlet.drain(0.05) == "nobody reads it, 7 bytes are lost"
    assert outlet.drain(LONG_S) == "nobody reads it, 7 bytes are lost"


def test_who_waits_for_the_last_write_knows_when_it_ends(pipe: tuple[int, int]) -> None:
    size = fill(pipe[1])
    outlet = outlet_to(pipe[1])
    assert outlet.ended_within(0.0)  # nothing was begun
    outlet.line("RESULT")
    assert outlet.drain(0.05)
    assert not outlet.ended_within(0.01)
    assert read(pipe[0], size + 7).endswith(b"RESULT\n")
    assert outlet.ended_within(LONG_S)


def test_a_signal_shortens_the_wait_for_a_reader(pipe: tuple[int, int]) -> None:
    fill(pipe[1])
    outlet = outlet_to(pipe[1])
    outlet.line("RESULT")
    asked: list[float] = []

    def seconds_left(seconds: float) -> float:
        asked.append(seconds)
        return 0 if len(asked) == 3 else seconds

    assert outlet.drain(LONG_S, seconds_left) == "nobody reads it, 7 bytes are lost"
    assert len(asked) == 3


def test_who_comes_back_is_told_of_the_gap(pipe: tuple[int, int]) -> None:
    held = fill(pipe[1])
    outlet = Outlet(lambda data: os.write(pipe[1], data), descriptor=pipe[1], max_waiting=10)
    outlet.line("first")
    for _ in range(5):
        outlet.line("lost")
    read(pipe[0], held)
    assert read(pipe[0], 6) == b"first\n"
    while outlet._waiting_bytes:
        os.sched_yield()
    outlet.line("last")
    assert outlet.drain(LONG_S) == ""
    expected = b"... 5 lines were lost: nobody read them\nlast\n"
    assert read(pipe[0], len(expected)) == expected


def test_lines_that_were_lost_at_the_end_are_told(pipe: tuple[int, int]) -> None:
    held = fill(pipe[1])
    outlet = Outlet(lambda data: os.write(pipe[1], data), max_waiting=10)
    for text in ("first", "lost", "lost"):
        outlet.line(text)
    reader = threading.Thread(target=read, args=(pipe[0], held + 6))
    reader.start()
    assert outlet.drain(LONG_S) == "nobody read it, 2 lines are lost"
    reader.join()


def test_a_reader_that_went_away(pipe: tuple[int, int]) -> None:
    os.dup2(pipe[1], pipe[0])  # the only reading end is gone
    outlet = outlet_to(pipe[1])
    outlet.line("x")
    assert outlet.drain(LONG_S) == os.strerror(errno.EPIPE)
    assert outlet.error is not None
    assert outlet.error.errno == errno.EPIPE


def test_a_full_device() -> None:
    with open("/dev/full", "w") as full:
        outlet = outlet_for(full)
        outlet.line("x")
        assert outlet.drain(LONG_S) == os.strerror(errno.ENOSPC)


def test_who_has_no_stdout_loses_all_in_peace() -> None:
    outlet = outlet_for(None)
    outlet.line("x")
    outlet.write_now("x")
    assert outlet.drain(LONG_S) == ""


def test_without_a_thread_the_caller_writes(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    outlet = outlet_to(pipe[1])
    outlet.line("out of threads")
    assert os.read(pipe[0], 100) == b"out of threads\n"
    assert outlet.drain(LONG_S) == ""


def test_a_stream_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    """Another program of the same terminal may have made it so."""
    held = fill(pipe[1])
    os.set_blocking(pipe[1], False)
    outlet = outlet_to(pipe[1])
    outlet.line("late")
    read(pipe[0], held)
    assert outlet.drain(LONG_S) == ""
    assert read(pipe[0], 5) == b"late\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_does_not_have_is_escaped(encoding: str) -> None:
    text = "Straße модель \ud800"
    raw = io.BytesIO()
    outlet = outlet_for(cast("io.TextIOWrapper", io.TextIOWrapper(raw, encoding, "strict")))
    outlet.line(text)
    assert outlet.drain(LONG_S) == ""


def test_bytes_of_an_encoding(pipe: tuple[int, int]) -> None:
    outlet = outlet_to(pipe[1], encoding="ascii")
    outlet.line("ü 模")
    assert outlet.drain(LONG_S) == ""
    assert os.read(pipe[0], 100) == rb"\xfc \u6a21" + b"\n"


def test_now_means_now_or_never(pipe: tuple[int, int]) -> None:
    write_now(pipe[1], b"now")
    assert os.read(pipe[0], 10) == b"now"
    held = fill(pipe[1])
    write_now(pipe[1], b"never")
    assert b"never" not in read(pipe[0], held)
    assert os.get_blocking(pipe[1])


def test_now_into_a_socket_and_a_file() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        write_now(ours.fileno(), b"now")
        assert theirs.recv(10) == b"now"
    with open(os.memfd_create("x"), "w+b") as file:
        write_now(file.fileno(), b"now")
        assert file.tell() == 3
    write_now(-1, b"nowhere")


def test_a_terminal_that_nobody_reads() -> None:
    terminal, other = os.openpty()
    try:
        write_now(other, b"now")
        assert os.read(terminal, 10) == b"now"
        outlet = outlet_to(other)
        assert outlet.isatty()
        outlet.write("x" * (1 << 20))
        assert outlet.drain(0.05).startswith("nobody reads it, ")
        outlet.write_now("y")
    finally:
        os.close(terminal)
        os.close(other)
