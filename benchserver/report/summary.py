"""A run as markdown, for the page that a CI shows beside a job: verdict, evidence, figures.

Bounded far below what GitHub takes of one step (1 MiB).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchserver.check.verdict import Check, Tally, Verdict
from benchserver.errors import one_line
from benchserver.report.replay import replay_command
from benchserver.result import RunResult

_WORDS = {Verdict.VALID: "PASS", Verdict.UNKNOWN: "UNPROVEN", Verdict.INVALID: "FAIL"}
_SENTENCES = {
    Verdict.VALID: "Everything that was asked for was proven.",
    Verdict.UNKNOWN: "Nothing failed, but something that was asked for is unproven.",
    Verdict.INVALID: "Something failed; the figures are of a run that did not pass.",
}
MOST_BYTES = 512 << 10
_MOST_TEXTS = 24
_TEXT_CHARS = 1000
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def summary_markdown(result: RunResult) -> bytes:
    """Return the summary."""
    lines, size = list[bytes](), 0
    for line in _lines(result):
        encoded = line.encode("utf-8", "backslashreplace") + b"\n"
        size += len(encoded)
        if size > MOST_BYTES:
            lines.append(b"\n... the rest does not fit here: see the JSON report\n")
            break
        lines.append(encoded)
    return b"".join(lines) + b"\n"


def _lines(result: RunResult) -> Iterator[str]:
    verdict, server = result.verdict, result.server
    yield f"## bench-server: {_WORDS[verdict]}"
    yield ""
    target = server.version or "no server was met"
    note = " (the embedded server: no evidence about LMCache)" if server.embedded else ""
    yield f"{_SENTENCES[verdict]} Server: {escaped(target)} at {escaped(server.rpc_url)}{note}."
    if result.interrupted:
        yield "A signal ended the run."
    total = result.sequences_ok + result.sequences_failed + result.sequences_unproven
    yield (
        f"{total} units of work: {result.sequences_ok} proven, {result.sequences_failed} failed, "
        f"{result.sequences_unproven} unproven, in {result.wall_ns / 1e9:.1f} s."
    )
    yield from _evidence(result)
    yield from _checks(result)
    yield from _latencies(result)
    yield from _sections(result)
    yield ""
    yield "The same work again:"
    yield ""
    yield from _fenced([one_line(replay_command(result), 8 * _TEXT_CHARS)])


def escaped(text: str) -> str:
    """Return a text that markdown and its tables take as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", one_line(text, _TEXT_CHARS))


def _evidence(result: RunResult) -> Iterator[str]:
    bad = [
        f"{check.name}: {one_line(text, _TEXT_CHARS)}"
        for check, tally in _ranked(result)
        if tally.verdict is not Verdict.VALID
        for text in tally.texts or ["never evaluated"]
    ]
    if bad:
        yield ""
        yield from _fenced(bad[:_MOST_TEXTS])
    if len(bad) > _MOST_TEXTS:
        yield f"... and {len(bad) - _MOST_TEXTS} more texts in the JSON report."


def _fenced(lines: list[str]) -> Iterator[str]:
    """Yield lines as code; none of them can end the block."""
    longest = max((len(ticks) for line in lines for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from lines
    yield fence


def _ranked(result: RunResult) -> list[tuple[Check, Tally]]:
    """Return the checks, the worst first."""
    return sorted(result.ledger.tallies.items(), key=lambda one: -one[1].verdict.value)


def _checks(result: RunResult) -> Iterator[str]:
    yield ""
    yield "| check | passed | failed | unproven | left out |"
    yield "|---|--:|--:|--:|---|"
    for check, tally in _ranked(result):
        counts = f"{tally.passed} | {tally.failed} | {tally.unproven}"
        yield f"| {escaped(check.name)} | {counts} | {escaped(tally.skipped)} |"


def _latencies(result: RunResult) -> Iterator[str]:
    summaries = [
        (series.name, summary)
        for series, latencies in result.measures.latencies.items()
        if (summary := latencies.summary()) is not None
    ]
    if not summaries:
        return
    yield ""
    yield "| latency, ms | count | p50 | p90 | p99 | max |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, of in summaries:
        figures = (of.p50_ms, of.p90_ms, of.p99_ms, of.max_ms)
        shown = " | ".join(f"{figure:.2f}" for figure in figures)
        yield f"| {escaped(name)} | {of.count} | {shown} |"


def _sections(result: RunResult) -> Iterator[str]:
    for section in result.sections:
        if section.lines:
            yield ""
            yield f"**{escaped(section.title)}**"
            yield ""
            yield from _fenced([one_line(line.text, _TEXT_CHARS) for line in section.lines[:200]])
