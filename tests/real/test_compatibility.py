"""The table of compatibility: its text, and its runs with our embedded server as a stand-in."""

from __future__ import annotations

import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.dialects import V055, V056, dialect_of
from tests.mitm.forkedserver import forked_server
from tests.real import compatibility
from tests.real.compatibility import (
    DOCUMENT,
    FAIL,
    HEADER,
    PASS,
    Row,
    check_cell,
    document,
    main,
    rows_of,
)
from tests.real.matrix import CELLS, HANDLE, INLINE, MODES, SHAPES, SHM, Cell, gap
from tests.real.releases import RELEASES

STAND_IN = f"""#!{sys.executable}
import os, sys
from pathlib import Path

known = ("--host", "--port", "--http-host", "--http-port", "--chunk-size", "--l1-size-gb")
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
release = Path(__file__).parents[1]
words = [word for name in known if options.get(name) for word in (name, options[name])]
words += ["--as", release.name, *release.joinpath("further").read_text().split()]
os.chdir({str(compatibility.ROOT)!r})
os.execv(sys.executable, [sys.executable, "-m", "benchserver", "serve", *words])
"""
ROWS = {
    "0.5.6": [Row(release="0.5.6", mode=HANDLE, version="0.5.6-gab", verdicts=("pass",) * 6)],
    "0.4.6": [Row(release="0.4.6", mode=INLINE, version="", verdicts=("b",) * 6)],
}
MLA_TP2 = Cell(mode=HANDLE, shape=SHAPES[3])


@pytest.fixture
def environments(tmp_path: Path) -> Iterator[Path]:
    """A folder with stand-ins for two releases; what `main` does to our signals is undone."""
    for name in ("0.5.6", "0.4.6"):
        command = tmp_path / name / "bin" / "lmcache"
        command.parent.mkdir(parents=True)
        command.write_text(STAND_IN)
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        (tmp_path / name / "further").touch()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def lines(date: str) -> dict[str, list[str]]:
    return {name: [row.markdown(date) for row in rows] for name, rows in ROWS.items()}


def test_the_document_keeps_its_rows_newest_release_first() -> None:
    rows = lines("2026-01-02")
    text = document(rows)
    assert rows_of(text) == rows
    assert text.index("| 0.5.6 |") < text.index("| 0.4.6 |")
    assert (
        "| 0.5.6 | lmcache_driven, handle | pass | pass | pass | pass | pass | pass | 0.5.6-gab "
        "| 2026-01-02 |\n" in text
    )
    assert "* **b**: the server cannot map" in text
    assert "* **d**" not in text
    assert "Not in the table: 0.4.1, 0.4.2, 0.4.3, 0.4.4, 0.4.5. " in text


def test_rows_of_other_columns_are_not_kept() -> None:
    assert rows_of(document(lines("2026-01-02")).replace("| uint8 |", "| int8 |")) == {}


def test_our_document_is_of_this_matrix() -> None:
    """Otherwise: run scripts/compat_table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = rows_of(text)
    assert text == document(rows)
    assert list(rows) == [release.name for release in RELEASES]
    for release in RELEASES:
        assert len(rows[release.name]) == len(MODES)
        for mode, line in zip(MODES, rows[release.name], strict=True):
            cells = line.strip("| ").split(" | ")
            assert len(cells) == len(HEADER)
            assert cells[1] == f"{mode.transfer}, {mode.transport}"
            gaps = [
                gap(Cell(mode=mode, shape=s), dialect_of(release.name), has_pool=release.has_pool)
                for s in SHAPES
            ]
            assert cells[2 : 2 + len(SHAPES)] == [why.mark if why else PASS for why in gaps]
            started = not all(gaps)
            assert cells[-2].startswith(f"{release.name}-g" if started else "not started")


def test_a_cell_passes_only_if_all_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "SEQUENCES", 1)
    with forked_server() as server:
        check_cell(server.urls, MLA_TP2, V056, tmp_path)
        with pytest.raises(AssertionError, match=r"spoken to as 0\.5\.6"):
            check_cell(server.urls, MLA_TP2, V055, tmp_path)
        with pytest.raises(AssertionError, match="--require-transport shm, but"):
            check_cell(server.urls, Cell(mode=SHM, shape=SHAPES[0]), V056, tmp_path)
    with (
        forked_server("--fault", "flip_byte:rank=0") as server,
        pytest.raises(AssertionError, match=r"bad checks .*content"),
    ):
        check_cell(server.urls, CELLS[0], V056, tmp_path)


def test_runs_what_a_release_must_pass_and_keeps_other_rows(
    environments: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compatibility, "SEQUENCES", 1)
    output = tmp_path / "table.md"
    output.write_text(document(lines("2026-01-02")))
    arguments = ["0.4.6", "--output", str(output)]

    assert main(arguments, environments) == 0
    rows = rows_of(output.read_text())
    assert rows["0.5.6"] == lines("2026-01-02")["0.5.6"]
    handle, inline, shm = rows["0.4.6"]
    assert handle.startswith("| 0.4.6 | lmcache_driven, handle | b | b | b | b | b | e | not st")
    assert inline.startswith("| 0.4.6 | engine_driven, inline | pass | pass | pass | pass | a | a ")
    assert "embedded" in inline
    assert shm.startswith("| 0.4.6 | engine_driven, shm | d | d | d | d | a | a | not started |")
    assert "2026-01-02" not in inline + handle + shm
    assert capsys.readouterr().out.count(": pass, ") == 4

    (environments / "0.4.6" / "further").write_text("--fault inline_cut")
    assert main(arguments, environments) == 1
    inline = rows_of(output.read_text())["0.4.6"][1]
    assert f"| {FAIL} | {FAIL} | {FAIL} | {FAIL} | a | a |" in inline
    assert "0.4.6, inline-single_group: FAIL: exit 1" in capsys.readouterr().err

    (environments / "0.4.6" / "further").write_text("--no-such-option")
    written = output.read_text()
    assert main(arguments, environments) == 1
    assert output.read_text() == written
    assert "0.4.6: the real server ended with code 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["0.5.66"], "'0.5.66' is not a release that can be started here"),
        ([], "no lmcache 0.4.7 in "),
        (["0.5.6", "--output", "/no/such/folder/t.md"], "not a file in an existing directory"),
        (["--sequences"], "unrecognized arguments: --sequences"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], text: str, environments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments, environments)
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert text in said.err
    assert said.err.startswith("compat_table: error: ")
    assert (said.err.count("\n"), said.out) == (1, "")
