"""docs/compatibility.md: which release was seen to pass in which transfer mode, with what shapes.

`scripts/compat_table` is the command line.  Every verdict comes from a run against a real server,
by the same check as in `test_matrix_real.py`; a cell that is not run names its gap.  Rows of
releases that were not asked for stay as they are, each with its own date.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import NoReturn

from protocol.dialect import Dialect
from protocol.dialects import DIALECTS, dialect_of
from protocol.httpapi import VERSION_PATH
from tests import acceptance
from tests.mitm.running import Urls
from tests.mitm.servers import real_server
from tests.real.matrix import GAPS, MODES, SEQUENCES, SHAPES, Cell, Mode, gap
from tests.real.releases import RELEASES, Release, release_named
from tests.real.serverprocess import ServerFailedError
from tests.room import clear, l1_for, stored_bytes

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "compatibility.md"
PASS = "pass"
FAIL = "FAIL"
_PROGRAM = "compat_table"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ANSWER_WITHIN_S = 10.0
_TOKENS = 512
"""Of a sequence, without --num-tokens."""


def check_cell(server: Urls, cell: Cell, dialect: Dialect, folder: Path) -> None:
    """Run one cell; AssertionError unless every rank proved everything, and nothing was left."""
    ended = acceptance.check_case(server, cell.case, SEQUENCES, folder)
    seen, checks = ended.report["server"], ended.report["checks"]
    assert seen["release"] == dialect.name, f"spoken to as {seen['release']}\n{ended.explain()}"
    assert seen["transport"] == cell.mode.transport, ended.explain()
    expected = cell.shape.ranks * SEQUENCES  # with MLA all ranks read one content
    for name in ("retrieve", "content"):
        assert checks[name]["passed"] == expected, f"{name}, not {expected}: {ended.explain()}"
    assert checks["residue"]["passed"], f"residue was not looked at: {ended.explain()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was seen of one release in one transfer mode.

    version: what the server said on /version, or "" if none was started.
    verdicts: one a shape, in the order of SHAPES: PASS, FAIL, or the mark of a gap.
    """

    release: str
    mode: Mode
    version: str
    verdicts: tuple[str, ...]

    def markdown(self, date: str) -> str:
        """Return the row of the table."""
        mode = f"{self.mode.transfer}, {self.mode.transport}"
        return _line((self.release, mode, *self.verdicts, self.version or "not started", date))


HEADER = ("release", "transfer mode", *(shape.name for shape in SHAPES), "/version", "date")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def document(rows: Mapping[str, Sequence[str]]) -> str:
    """Return the document; `rows` are the lines of each release."""
    newest_first = [release.name for release in reversed(RELEASES)]
    table = [line for name in newest_first for line in rows.get(name, ())]
    used = [one for one in GAPS if any(f" | {one.mark} | " in line for line in table)]
    lines = [
        "# Compatibility",
        "",
        "What bench-server was seen to do against the real `lmcache server` of each release, on",
        f"CPU. Each *{PASS}* is a run of {SEQUENCES} sequences at `--interval 0` that exited 0:",
        "every byte of every rank proven, every check valid, nothing left on the server or the",
        "machine. `scripts/compat_table` makes the runs and writes this file, `scripts/test --real",
        "all` makes the same runs as tests.",
        "",
        _line(HEADER),
        "|" + "---|" * len(HEADER),
        *table,
        "",
        "Not run, since bench-server refuses it in one line:",
        "",
        *(f"* **{one.mark}**: {one.meaning}." for one in used),
        "",
        "The shapes:",
        "",
        *(f"* {shape.name}: `{shape.spec}`{_on_ranks(shape.ranks)}" for shape in SHAPES),
        "",
        *_never_run(),
    ]
    return "\n".join(lines) + "\n"


def _on_ranks(ranks: int) -> str:
    return f", `--tp-size {ranks}`" if ranks > 1 else ""


def _never_run() -> list[str]:
    """Return what is to be said of the dialects that no server speaks without a GPU."""
    mute = [dialect for dialect in DIALECTS if not (dialect.maps_cpu or dialect.engine_driven)]
    names = ", ".join(release for dialect in reversed(mute) for release in dialect.releases)
    return [
        f"Not in the table: {names}. Their servers have no transfer mode on CPU",
        "(`maps_cpu` and `engine_driven` of their dialects), so nothing was run: their rows in",
        "`protocol/dialects.py` are from their sources alone (`verified`).",
    ]


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the rows of a document by release; none if its columns are not those of today."""
    lines = text.splitlines()
    rows: dict[str, list[str]] = {release.name: [] for release in RELEASES}
    if _line(HEADER) in lines:
        for line in lines:
            name = line.removeprefix("| ").partition(" | ")[0]
            if name in rows:
                rows[name].append(line)
    return {name: found for name, found in rows.items() if found}


def examine(release: Release, mode: Mode, python: str, folder: Path) -> Row:
    """Run all shapes that the release must pass in this mode, on a server of their own."""
    dialect = dialect_of(release.name)
    cells = [Cell(mode=mode, shape=shape) for shape in SHAPES]
    gaps = [gap(cell, dialect, has_pool=release.has_pool) for cell in cells]
    version, verdicts = "", [why.mark if why else FAIL for why in gaps]
    if FAIL in verdicts:
        pool = f"compat{os.getpid()}" if mode.pool else ""
        options = (*release.mode_options(release.widest_on_cpu, pool), *_room_for_each_cell())
        with real_server(python, folder / "server.log", options) as server:
            version = _version(server.urls)
            for number, cell in enumerate(cells):
                if gaps[number]:
                    continue
                clear(server.urls, dialect.http)
                if _passes(server.urls, cell, release, folder):
                    verdicts[number] = PASS
    return Row(release=release.name, mode=mode, version=version, verdicts=tuple(verdicts))


def _room_for_each_cell() -> tuple[str, str]:
    """Return the option for an L1 that evicts nothing of what the largest cell stores."""
    return l1_for(
        max(
            stored_bytes(shape.spec, tokens=_TOKENS, sequences=SEQUENCES, ranks=shape.ranks)
            for shape in SHAPES
        )
    )


def _version(server: Urls) -> str:
    with urllib.request.urlopen(server.http_url + VERSION_PATH, timeout=_ANSWER_WITHIN_S) as answer:
        return str(json.load(answer))


def _passes(server: Urls, cell: Cell, release: Release, folder: Path) -> bool:
    started = time.monotonic()
    try:
        check_cell(server, cell, dialect_of(release.name), folder)
    except AssertionError as error:
        print(f"{release.name}, {cell.name}: {FAIL}: {error}", file=sys.stderr, flush=True)
        return False
    print(f"{release.name}, {cell.name}: {PASS}, {time.monotonic() - started:.1f} s", flush=True)
    return True


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{_PROGRAM}: error: {message}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for: releases, each with the python of its environment."""

    pythons: Mapping[str, str]
    output: Path


def parse(arguments: Sequence[str], environments: Path) -> Asked:
    """Read the command line; wrong usage, or what is not installed, exits 2."""
    parser = _Parser(
        prog=f"scripts/{_PROGRAM}",
        description="Runs the matrix against real servers, and writes the table of what passed.",
        allow_abbrev=False,
    )
    parser.add_argument("releases", metavar="RELEASE", nargs="*", help="default: all")
    parser.add_argument(
        "--output", metavar="PATH", type=Path, default=DOCUMENT, help="default: %(default)s"
    )
    given = parser.parse_args(arguments)
    if not __debug__:
        parser.error("the checks are assertions, which python -O leaves out")
    if not given.output.parent.is_dir() or given.output.is_dir():
        parser.error(f"--output {given.output}: not a file in an existing directory")
    pythons: dict[str, str] = {}
    for name in given.releases or [release.name for release in RELEASES]:
        try:
            folder = environments / release_named(name).name
        except LookupError as error:
            parser.error(str(error.args[0]))
        if not (folder / "bin" / "lmcache").exists():
            parser.error(f"no lmcache {name} in {folder}, install it: scripts/real_server {name}")
        pythons[name] = str(folder / "bin" / "python")
    return Asked(pythons=pythons, output=given.output)


def main(arguments: Sequence[str], environments: Path = ROOT / ".real") -> int:
    """Examine releases, and write the document after each; return the exit code."""
    asked = parse(arguments, environments)
    for number in _SIGNALS:
        signal.signal(number, _ask_to_stop)
    failed, name = False, ""
    try:
        for name, python in asked.pythons.items():
            with tempfile.TemporaryDirectory(prefix="compat_table") as folder:
                rows = [examine(release_named(name), mode, python, Path(folder)) for mode in MODES]
            failed = failed or any(FAIL in row.verdicts for row in rows)
            _update(asked.output, name, rows)
    except ServerFailedError as error:
        print(f"{_PROGRAM}: error: {name}: {error}; its rows stay as they were", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{_PROGRAM}: stopped; {name} and later stay as they were", file=sys.stderr)
        return 130
    return 1 if failed else 0


def _update(path: Path, name: str, rows: Sequence[Row]) -> None:
    """Replace the rows of one release; the file is written at once or not at all."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    known = rows_of(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[name] = [row.markdown(date) for row in rows]
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(document(known), encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _ask_to_stop(number: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # the stop has a deadline; nothing may cut it short
    raise KeyboardInterrupt
