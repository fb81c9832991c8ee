"""Rows at the foot of a terminal, below lines that stay."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator

import pytest

from benchserver.outlet import Outlet, outlet_for
from benchserver.report import screen as screen_module
from benchserver.report.screen import Screen, can_paint, screen_on
from tests.terminal import Terminal


class Stage:
    """A screen on a terminal, in memory."""

    def __init__(self, columns: int = 30, rows: int = 8, *, breaks: bool = True) -> None:
        self.terminal = Terminal(columns, rows, breaks=breaks)
        self.ours = True
        self.outlet = Outlet(self._take, in_memory=True)
        self.screen = Screen(
            self.outlet,
            size=lambda: (self.terminal.columns, self.terminal.height),
            ours=lambda: self.ours,
        )

    def _take(self, data: bytes) -> int:
        # As terminals are set by default.
        self.terminal.feed(data.replace(b"\n", b"\r\n"))
        # In one write: the cursor is never hidden for long, and long lines break.
        assert self.terminal.shows_cursor
        assert self.terminal.wraps
        assert not self.terminal.other_screen
        return len(data)

    @property
    def text(self) -> list[str]:
        shown = self.terminal.text
        while shown and not shown[-1]:
            shown.pop()
        return shown


def test_rows_are_painted_anew_below_lines_that_stay() -> None:
    stage = Stage()
    stage.screen.write(["first"])
    assert not stage.screen.painted
    assert stage.screen.write([], ["a", "b", "c"])
    assert stage.text == ["first", "a", "b", "c"]
    assert stage.terminal.cursor == (1, 0)
    stage.screen.write([], ["longer", "bb"])
    assert stage.text == ["first", "longer", "bb"]
    stage.screen.write(["second", "third"], ["x", "y"])
    assert stage.text == ["first", "second", "third", "x", "y"]
    assert stage.screen.painted
    stage.screen.write(["last"])
    assert stage.text == ["first", "second", "third", "last"]
    assert not stage.screen.painted


def test_lines_scroll_out_above_the_rows_and_rows_never_do() -> None:
    stage = Stage(rows=5)
    for number in range(20):
        stage.screen.write([f"line {number}"], ["a", "b", "c"])
    assert stage.text == ["line 18", "line 19", "a", "b", "c"]
    assert stage.terminal.everything == [*(f"line {n}" for n in range(20)), "a", "b", "c"]


def test_a_long_line_is_broken_by_the_terminal_and_a_long_row_is_cut() -> None:
    stage = Stage(columns=10)
    stage.screen.write([], ["r" * 30, "s"])
    stage.screen.write(["x" * 25], ["r" * 30, "s"])
    assert stage.text == ["x" * 10, "x" * 10, "x" * 5, "r" * 9, "s"]
    stage.screen.write([], ["t" * 30, "s"])
    assert stage.text[-2:] == ["t" * 9, "s"]


@pytest.mark.parametrize("breaks", [True, False])
def test_nothing_is_left_of_rows_in_a_window_that_became_narrower_or_lower(breaks: bool) -> None:
    stage = Stage(columns=40, rows=12, breaks=breaks)
    stage.screen.write(["first line"], ["-" * 39, "a" * 39, "b" * 39])
    for columns, rows in ((20, 12), (10, 6), (40, 12), (12, 4), (100, 50)):
        stage.terminal.resize(columns, rows)
        body = ["=" * (columns - 1), "c" * (columns - 1)]
        stage.screen.write([], body)
        assert stage.text[-2:] == body
        assert not any(sign in "".join(stage.terminal.everything[:-2]) for sign in "-=abc")
    stage.screen.write(["end"])
    assert stage.terminal.everything == ["first line", "end", ""]


def test_what_another_has_is_not_painted_on() -> None:
    stage = Stage()
    stage.screen.write([], ["a"])
    stage.screen.wipe_now()
    stage.ours = False
    assert not stage.screen.write(["line"], ["a"])
    assert not stage.screen.write([], ["a"])
    stage.ours = True
    assert stage.screen.write([], ["a"])
    assert stage.text[-2:] == ["line", "a"]


def test_a_terminal_that_nobody_reads_gets_lines_alone() -> None:
    written: list[bytes] = []

    class Stopped(Outlet):
        waiting = True

    def write(data: bytes) -> int:
        written.append(data)
        return len(data)

    outlet = Stopped(write, in_memory=True)
    screen = Screen(outlet, size=lambda: (80, 24))
    assert not screen.write([], ["row"])
    assert written == []
    assert not screen.write(["line"], ["row"])
    assert written == [b"line\n"]


def test_who_can_be_painted_on() -> None:
    assert can_paint({"TERM": "xterm-256color"})
    assert can_paint({"TERM": "linux", "NO_COLOR": "1"})
    for environ in ({}, {"TERM": ""}, {"TERM": "dumb"}, {"TERM": "unknown"}):
        assert not can_paint(environ)


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    terminal, other = os.openpty()
    yield terminal, other
    os.close(terminal)
    os.close(other)


def test_the_size_is_the_one_of_now(pty: tuple[int, int], set_size: Callable[..., None]) -> None:
    terminal, other = pty
    with open(other, "w", closefd=False) as stream:
        screen = screen_on(outlet_for(stream))
        assert screen.size == (80, 24)  # it says that it has none
        set_size(terminal, 20, 5)
        assert screen.size == (20, 5)
    assert screen_on(outlet_for(io.StringIO())).size == (80, 24)


def test_the_rows_are_wiped_in_a_handler_of_signals(pty: tuple[int, int]) -> None:
    """No lock is taken, and what waits stands back."""
    terminal, other = pty
    with open(other, "w", closefd=False) as stream:
        outlet = outlet_for(stream)
        screen = screen_on(outlet)
        seen = Terminal()
        screen.wipe_now()
        screen.write(["line"], ["a", "b"])
        while seen.text[:3] != ["line", "a", "b"] or not seen.wraps:
            seen.feed(os.read(terminal, 1000))
        with outlet._changed:
            screen.wipe_now()
        while any(seen.text[1:]):
            seen.feed(os.read(terminal, 1000))
        assert outlet.drain(30) == ""
    assert (seen.text[0], seen.cursor, seen.shows_cursor) == ("line", (1, 0), True)


def test_a_process_in_the_background_does_not_paint(
    pty: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = pty
    has = [os.getpgrp()]
    monkeypatch.setattr(screen_module, "_group_with", lambda _: has[0])
    with open(other, "w", closefd=False) as stream:
        outlet = outlet_for(stream)
        screen = screen_on(outlet)
        assert screen.write([], ["a"])
        has[0] = 1  # a shell's
        assert not screen.write(["line"], ["a"])
        assert outlet.drain(30) == ""
    # Of one that began there, as under `timeout`, nobody can tell: it paints as it began.
    with open(other, "w", closefd=False) as stream:
        outlet = outlet_for(stream)
        assert screen_on(outlet).write([], ["a"])
        assert outlet.drain(30) == ""
