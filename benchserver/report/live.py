"""The live view: lines of a run on a terminal, and below them what it has come to.

rich says which colours a terminal has, how wide a character is, and how a style is written.  Its
own `Live` is not used: it hides the cursor from beginning to end, counts rows that a terminal has
since broken into more, and writes from a thread of its own.  See `report.screen` for how it is done
here.

While the view stands, lines wait for the next painting, a fourth of a second at most.  A run may
have more of them than anybody could read: of those that come between two paintings so many are
shown, and the number of the others.  Failures are never left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO, cast

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.monitor.snapshot import Snapshot
from benchserver.outlet import Outlet
from benchserver.report.frame import Window, frame
from benchserver.report.screen import Screen, screen_on
from benchserver.report.trends import Trends

PAINTINGS = 4
"""A second, at most: more often nobody can read figures."""

READ_EVERY = 4
"""So many paintings: looking at a run takes a millisecond or so of its loop."""

_LINES_AT_ONCE = 40
"""Between two paintings: a full window, and far more than anybody reads."""

_FAILURES_AT_ONCE = 1000
"""As many are kept even so; then they are counted, too."""

_SPARE_ROWS = 1
"""For the last line above the view."""

_STYLES = {
    PLAIN: Style(),
    GOOD: Style(color="green"),
    BAD: Style(color="red", bold=True),
    FAINT: Style(dim=True),
}


class LivePrinter:
    """Coloured lines above a view of the run, on a terminal."""

    def __init__(self, outlet: Outlet, screen: Screen | None = None) -> None:
        """Show nothing yet."""
        self._screen = screen or screen_on(outlet)
        self._paint = Paint(cast(TextIO, outlet))
        self._ascii_only = not _has_blocks(outlet.encoding)
        self._trends = Trends()
        self._now: Snapshot | None = None
        self._waiting: list[str] = []
        self._left_out = 0
        self._made: tuple[Snapshot, tuple[int, int], list[str]] | None = None
        self._shown: list[str] | None = None

    def write(self, line: Line) -> None:
        """Write one line above the view, soon."""
        if self._now is None:
            self._screen.write([self._paint.text(line)])
        elif len(self._waiting) < (_FAILURES_AT_ONCE if line.style == BAD else _LINES_AT_ONCE):
            self._waiting.append(self._paint.text(line))
        else:
            self._left_out += 1

    def show(self, now: Snapshot) -> None:
        """Take in what the run has come to."""
        self._now = now
        self._trends.take(now)

    def paint(self) -> None:
        """Bring the terminal up to date; to be called some times a second."""
        if self._now is None:
            return
        rows = self._rows(self._now, self._screen.size)
        stands = self._screen.painted and rows is self._shown
        if (not stands or self._waiting) and self._screen.write(self._taken(), rows):
            self._shown = rows

    def _rows(self, now: Snapshot, size: tuple[int, int]) -> list[str]:
        """Return the rows of the view; the same list as long as nothing has changed."""
        if self._made is not None and self._made[0] is now and self._made[1] == size:
            return self._made[2]
        columns, rows = size
        window = Window(
            # A row that fills the last column may be broken, or not: terminals differ.
            columns=columns - 1,
            rows=rows - _SPARE_ROWS,
            ascii_only=self._ascii_only,
        )
        made = [self._paint.row(row) for row in frame(now, self._trends, window)]
        self._made = now, size, made
        return made

    def close(self) -> None:
        """Wipe the view, and write what waits."""
        self._screen.write(self._taken())
        self._now = None

    def restore(self) -> None:
        """The same in a handler of signals."""
        self._screen.wipe_now()

    def _taken(self) -> list[str]:
        lines, self._waiting = self._waiting, []
        if self._left_out:
            text = f"... {self._left_out} more lines, too many to be read"
            lines.append(self._paint.text(Line(text, FAINT)))
            self._left_out = 0
        return lines


class Paint:
    """Lines and rows as text with the codes of their styles, as far as a terminal has them."""

    def __init__(self, terminal: TextIO) -> None:
        """NO_COLOR, FORCE_COLOR and TERM are heard."""
        console = Console(file=terminal)
        self._has_styles = console.color_system is not None
        self._has_colours = not console.no_color

    def text(self, line: Line) -> str:
        """Return a line."""
        style = _STYLES[line.style]
        if not self._has_styles:
            return line.text
        style = style if self._has_colours else style.without_color
        return style.render(line.text, color_system=ColorSystem.STANDARD)

    def row(self, pieces: Iterable[Line]) -> str:
        """Return a row."""
        return "".join(map(self.text, pieces))


def _has_blocks(encoding: str) -> bool:
    try:
        "▁█━─".encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True
