"""A run as markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchserver.check.content import CONTENT
from benchserver.check.verdict import failed
from benchserver.line import Line
from benchserver.report.summary import MOST_BYTES, escaped, summary_markdown
from benchserver.result import RunResult
from benchserver.section import Section

GoodResult = Callable[..., RunResult]


def test_a_good_run_says_so_first(good_result: GoodResult) -> None:
    section = Section(key="x", title="Load", lines=(Line("  Hits: 3 of 4"),), document={})
    lines = summary_markdown(good_result(sections=(section,))).decode().splitlines()
    assert lines[0] == "## bench-server: PASS"
    assert "Everything that was asked for was proven." in lines[2]
    assert "2 units of work: 2 proven, 0 failed, 0 unproven, in 1.2 s." in lines
    assert any(line.startswith("| content | 1 | 0 | 0 |") for line in lines)
    assert lines.index("**Load**") < lines.index("Hits: 3 of 4")
    assert any(line.startswith("bench-server --mode") for line in lines)


def test_a_bad_run_shows_its_evidence_and_nothing_of_it_is_markup(good_result: GoodResult) -> None:
    result = good_result()
    result.ledger.add([failed(CONTENT, "``` | <b>bad</b> " + "x" * 5000)] * 3)
    text = summary_markdown(replace(result, interrupted=True)).decode()
    lines = text.splitlines()
    assert lines[0] == "## bench-server: FAIL"
    assert "A signal ended the run." in lines
    fence = lines.index("````text")
    assert lines[fence + 1].startswith("content: ``` | <b>bad</b> xxx")
    assert len(text) < 100_000
    content = next(line for line in lines if line.startswith("| content"))
    store = next(line for line in lines if line.startswith("| store"))
    assert lines.index(content) < lines.index(store), "the worst comes first"


def test_no_text_is_markup() -> None:
    assert escaped("a|b\n`c` <d> *e* [f](g)") == r"a\|b \`c\` \<d\> \*e\* \[f\](g)"


def test_it_never_outgrows_what_a_page_takes(good_result: GoodResult) -> None:
    many = tuple(Line("ä" * 3000) for _ in range(300))
    sections = tuple(Section(key=f"x{n}", title="t", lines=many, document={}) for n in range(9))
    text = summary_markdown(good_result(sections=sections))
    assert len(text) < MOST_BYTES + 200
    assert text.startswith(b"## bench-server: PASS")
    assert b"the rest does not fit here: see the JSON report" in text[-200:]
