"""Lines of a run and the view below them, as a person sees them."""

from __future__ import annotations

import io
from typing import Any

import pytest

from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.outlet import Outlet
from benchserver.report.live import LivePrinter
from benchserver.report.screen import Screen
from tests.benchserver.report.snapshots import bad_snapshot, snapshot
from tests.terminal import Terminal


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


class Stage:
    """A printer on a terminal in memory."""

    def __init__(self, columns: int = 60, rows: int = 12, encoding: str = "utf-8") -> None:
        self.terminal = Terminal(columns, rows)
        self.writes = 0
        outlet = Outlet(self._take, encoding=encoding, is_terminal=True, in_memory=True)
        size = lambda: (self.terminal.columns, self.terminal.height)  # noqa: E731
        self.screen = Screen(outlet, size=size)
        self.printer = LivePrinter(outlet, self.screen)

    def _take(self, data: bytes) -> int:
        self.writes += 1
        self.terminal.feed(data.replace(b"\n", b"\r\n"))
        return len(data)


def test_lines_are_written_at_once_before_the_view_and_after_it() -> None:
    stage = Stage()
    stage.printer.paint()
    stage.printer.write(Line("Connecting", FAINT))
    assert stage.terminal.text[0] == "Connecting"
    stage.printer.show(snapshot())
    stage.printer.close()
    stage.printer.close()
    stage.printer.write(Line("RESULT: PASS", GOOD))
    assert stage.terminal.text[:3] == ["Connecting", "RESULT: PASS", ""]
    assert stage.terminal.cursor == (2, 0)


def test_lines_stand_above_the_view_from_the_next_painting_on() -> None:
    stage = Stage()
    stage.printer.show(snapshot())
    stage.printer.write(Line("[seq=0] \x1b[1mSTORE :smile: [bold]"))
    assert not any(stage.terminal.text)
    stage.printer.paint()
    assert stage.terminal.text[1].startswith("── running ──")
    assert stage.terminal.text[0] == "[seq=0] STORE :smile: [bold]"
    assert stage.terminal.text[3].startswith("0:03:12 since it began")
    stage.printer.write(Line("more"))
    stage.printer.close()
    assert [row for row in stage.terminal.text if row][1:] == ["more"]


def test_what_has_not_changed_is_not_painted_again() -> None:
    stage = Stage()
    stage.printer.show(snapshot())
    stage.printer.paint()
    stage.printer.paint()
    assert stage.writes == 1
    stage.terminal.resize(20, 5)
    stage.printer.paint()
    assert stage.writes == 2
    assert stage.terminal.text[0] == "60 proven, 0 failed"
    stage.screen.wipe_now()
    stage.screen._painted = False  # as a handler of signals leaves it
    stage.printer.paint()
    assert stage.writes == 3


def test_more_lines_than_anybody_reads_are_counted_but_failures_are_shown() -> None:
    stage = Stage(rows=200)
    stage.printer.show(snapshot())
    for number in range(100):
        stage.printer.write(Line(f"step {number}"))
        if number % 50 == 49:
            stage.printer.write(Line(f"FAILED {number}", BAD))
    stage.printer.paint()
    above = stage.terminal.text[: stage.terminal.cursor[0]]
    assert above == [
        *(f"step {number}" for number in range(40)),
        "FAILED 49",
        "FAILED 99",
        "... 60 more lines, too many to be read",
    ]
    stage.printer.write(Line("step 100"))
    stage.printer.paint()
    assert stage.terminal.text[len(above)] == "step 100"
    for number in range(3000):
        stage.printer.write(Line(f"FAILED {number}", BAD))
    stage.printer.paint()
    assert "... 2000 more lines, too many to be read" in stage.terminal.everything


@pytest.mark.parametrize(
    ("variables", "styles"),
    [
        ({}, {"32", "1;31", "2", "0"}),
        ({"NO_COLOR": "1"}, {"1", "2", "0"}),
        ({"TERM": "dumb"}, set()),
    ],
)
def test_colours(
    variables: dict[str, str], styles: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stage = Stage()
    for style in (PLAIN, GOOD, BAD, FAINT):
        stage.printer.write(Line(f"{style} line", style))
    assert stage.terminal.text[:4] == ["plain line", "good line", "bad line", "faint line"]
    assert stage.terminal.styles == styles


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminals_of_other_encodings(encoding: str) -> None:
    stage = Stage(rows=24, encoding=encoding)
    stage.printer.show(bad_snapshot())
    stage.printer.paint()
    assert stage.terminal.text[0].startswith("──" if encoding == "utf-8" else "--")


def test_nothing_is_written_where_there_is_no_room() -> None:
    stage = Stage(columns=1, rows=1)
    stage.printer.show(snapshot())
    stage.printer.paint()
    assert stage.terminal.text == [""]


def test_rich_writes_nothing_by_itself(capsys: pytest.CaptureFixture[Any]) -> None:
    printer = LivePrinter(Outlet(io.BytesIO().write, in_memory=True))
    printer.show(snapshot())
    printer.paint()
    printer.close()
    assert capsys.readouterr() == ("", "")
