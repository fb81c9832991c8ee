"""Tables in our documents, read so that they can be compared with the code.

docs/architecture.md names modules in the first column of tables headed `module` or `room`.  Where
they lie is said above the table: by a heading that is a package's name, or by a line that says
"in `folder/`", a folder of benchserver, and ends in a colon.  In a cell, a name without a folder
lies where the one before it does: `check/replies`, `transport`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.rules.source import PRODUCT, Source

_IN_BACKQUOTES = re.compile(r"`([^`]+)`")
_FOLDER_ABOVE = re.compile(r"in `([\w/]+)/`.*:$")
_HEADING = re.compile(r"#+ +(\w+)$")


@dataclass(frozen=True)
class Table:
    """A table of Markdown; `folder` is where the modules lie that are named in it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    folder: str


def tables_in(text: str) -> list[Table]:
    """Return the tables of a document, in order."""
    found, block, folder = [], list[str](), "benchserver"
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if len(block) > 1:
            header, _, *rows = map(_cells, block)
            found.append(Table(header, tuple(rows), folder))
        block = []
        folder = _folder_said(line) or folder
    return found


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])


def _folder_said(line: str) -> str:
    if heading := _HEADING.fullmatch(line):
        return heading[1] if heading[1] in PRODUCT else ""
    if above := _FOLDER_ABOVE.search(line):
        return f"benchserver/{above[1]}"
    return ""


def rows_under(text: str, *header: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of every table whose header begins so, by first cell, without backquotes."""
    return {
        row[0].replace("`", ""): tuple(cell.replace("`", "") for cell in row[1:])
        for table in tables_in(text)
        if table.header[: len(header)] == header
        for row in table.rows
    }


def places_named(text: str) -> list[str]:
    """Return the modules, and folders with a slash at the end, that the tables name, as places."""
    return [
        place
        for table in tables_in(text)
        if table.header[0] in ("module", "room")
        for row in table.rows
        for place in _places_in(row[0], table.folder)
    ]


def _places_in(cell: str, folder: str) -> Iterator[str]:
    below = ""
    for name in _IN_BACKQUOTES.findall(cell):
        if "/" in name:
            below = name.rpartition("/")[0] + "/"
            name = name.rpartition("/")[2]
        yield f"{folder}/{below}{name}.py" if name else f"{folder}/{below}"


def wrong_places(source: Source, text: str) -> list[str]:
    """Return what a document names and is not there, and the modules that it does not name."""
    named = places_named(text)
    there = {file.place for file in source.product}
    folders = {place[: at + 1] for place in there for at, sign in enumerate(place) if sign == "/"}
    needed = {file.place for file in source.product if not file.stem.startswith("__")}
    return [
        *(f"{place} is named and not there" for place in named if place not in there | folders),
        *(f"{place} is not named" for place in sorted(needed - set(named))),
    ]
