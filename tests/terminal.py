"""A terminal, as far as our live view needs one; what it does not know fails the test.

Of what lies beside the screen it keeps what was scrolled out at the top.  When it is made narrower
it breaks long rows into several, as most terminals do, or cuts them, as xterm does.
"""

from __future__ import annotations

import codecs
import re

from rich.cells import cell_len

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([a-zA-Z])")
_MODES = {"7": "wraps", "25": "shows_cursor", "1049": "other_screen"}


class Terminal:
    """Takes what a program writes; `text` is what a person sees."""

    def __init__(self, columns: int = 80, rows: int = 24, *, breaks: bool = True) -> None:
        """`breaks`: rows that become too long are broken, not cut."""
        self.columns, self.height = columns, rows
        self.wraps = self.shows_cursor = True
        self.other_screen = False
        self.hidden_at_rest = False
        self._breaks = breaks
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._lines: list[list[str]] = [[]]
        self._goes_on = [False]
        """Whether a row is the rest of the one above."""
        self._top = self._y = self._x = 0
        self.styles = set[str]()

    @property
    def text(self) -> list[str]:
        """Return the rows of the screen, without blanks at their ends."""
        shown = ["".join(line).rstrip() for line in self._lines[self._top :][: self.height]]
        return shown + [""] * (self.height - len(shown))

    @property
    def everything(self) -> list[str]:
        """Return all rows, those that were scrolled out first."""
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def cursor(self) -> tuple[int, int]:
        """Return the row and the column of the cursor on the screen."""
        return self._y - self._top, self._x

    def feed(self, data: bytes) -> None:
        """Take bytes; a sequence may come in parts."""
        text = self._rest + self._decoder.decode(data)
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    if len(text) - at > 20:
                        raise AssertionError(f"an unknown sequence: {text[at : at + 20]!r}")
                    break
                self._obey(found[1], found[2], found[3])
                at = found.end()
                continue
            self._put(char)
            at += 1
        self._rest = text[at:]

    def resize(self, columns: int, rows: int) -> None:
        """Get another size."""
        if self._breaks:
            self._break_anew(columns)
        else:
            self._lines = [line[:columns] for line in self._lines]
            self._x = min(self._x, columns - 1)
        self.columns, self.height = columns, rows
        self._top = max(min(self._top, self._y), self._y - rows + 1)
        del self._lines[self._top + rows :], self._goes_on[self._top + rows :]

    def _obey(self, private: str, numbers: str, letter: str) -> None:
        if private:
            assert letter in "hl", (private, numbers, letter)
            setattr(self, _MODES[numbers], letter == "h")
        elif letter == "m":
            self.styles.add(numbers)
        elif letter == "A":
            self._y = max(self._top, self._y - int(numbers or 1))
        elif letter == "J" and numbers in ("", "0"):
            self._erase_right()
            del self._lines[self._y + 1 :], self._goes_on[self._y + 1 :]
        elif letter == "K" and numbers in ("", "0"):
            self._erase_right()
        else:
            raise AssertionError(f"an unknown sequence: {private}{numbers}{letter}")

    def _erase_right(self) -> None:
        # In the column behind the last one, terminals erase that.
        del self._lines[self._y][min(self._x, self.columns - 1) :]

    def _put(self, char: str) -> None:
        if char == "\r":
            self._x = 0
            return
        if char == "\n":
            self._down(goes_on=False)
            return
        assert char.isprintable(), repr(char)
        width = cell_len(char)
        if self._x + width > self.columns:
            if not self.wraps:
                self._x = self.columns - width
            else:
                self._down(goes_on=True)
                self._x = 0
        line = self._lines[self._y]
        line.extend(" " * (self._x - len(line)))
        line[self._x : self._x + width] = [char] + [""] * (width - 1)
        self._x += width

    def _down(self, *, goes_on: bool) -> None:
        self._y += 1
        if self._y == len(self._lines):
            self._lines.append([])
            self._goes_on.append(goes_on)
        else:
            self._goes_on[self._y] = goes_on
        self._top = max(self._top, self._y - self.height + 1)

    def _break_anew(self, columns: int) -> None:
        lines: list[list[str]] = []
        goes_on: list[bool] = []
        whole: list[str] = []
        top, y, x = 0, 0, self._x
        for at, line in enumerate(self._lines):
            if not self._goes_on[at]:
                whole = []
            offset = len(whole)
            whole = whole + line
            more = at + 1 < len(self._lines) and self._goes_on[at + 1]
            first = len(lines)
            if at == self._top:
                top = first + offset // columns
            if at == self._y:
                y, x = first + (offset + self._x) // columns, (offset + self._x) % columns
            if more:
                continue
            parts = [whole[i : i + columns] for i in range(0, max(len(whole), 1), columns)]
            lines += parts
            goes_on += [False] + [True] * (len(parts) - 1)
        while y >= len(lines):
            lines.append([])
            goes_on.append(False)
        self._lines, self._goes_on, self._top, self._y, self._x = lines, goes_on, top, y, x
