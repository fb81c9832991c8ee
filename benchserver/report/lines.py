"""What every run has, as lines of text: findings, checks, latencies, the verdict.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from benchserver.check.verdict import Finding, Verdict
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.report.replay import replay_command
from benchserver.result import RunResult
from benchserver.stats.latency import LatencySummary


def verdict_on(label: str, findings: Sequence[Finding], *, proven: str) -> list[Line]:
    """Return the verdict on a unit of work: `proven` if nothing is wrong, else one line a cause.

    The same on several ranks is one line, and so is all that it did not come to.
    """
    bad = [finding for finding in findings if finding.verdict is not Verdict.VALID]
    if not bad:
        return [Line(f"[{label}] {proven}", GOOD)] if proven else []
    causes = [finding for finding in bad if not finding.follows] or bad[:1]
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in causes:
        key = (_headline(finding), _RANK.sub("", finding.text))
        alike.setdefault(key, []).append(finding)
    lines = [
        f"{headline}: {same[0].text}{_elsewhere(len(same) - 1)}"
        for (headline, _), same in alike.items()
    ]
    if rest := [finding for finding in bad if finding not in causes]:
        names = dict.fromkeys(finding.check.name for finding in rest)
        lines.append(_not_looked_at(names, len(rest)))
    return [Line(f"[{label}] {line}", BAD) for line in lines]


_RANK = re.compile(r"\brank=[0-9]+")


def _headline(finding: Finding) -> str:
    verdict = "FAILED" if finding.verdict is Verdict.INVALID else "UNPROVEN"
    return f"{verdict} {finding.check.name}"


def _elsewhere(count: int) -> str:
    """Say on how many other ranks the same was found."""
    if not count:
        return ""
    return f" (the same on {count} more rank{'s' if count > 1 else ''})"


def _not_looked_at(checks: Iterable[str], count: int) -> str:
    return f"UNPROVEN {', '.join(checks)}: not looked at after that, {count} in all"


def summary_lines(result: RunResult, units: str) -> list[Line]:
    """Return the summary: counts of `units`, checks, latencies, rates, target, verdict."""
    if not _sequences(result):
        return [*_section_lines(result), *verdict_lines(result)]
    return [
        Line(""),
        _count_line(result, units),
        *_check_lines(result),
        *_probe_lines(result, units),
        *_latency_lines(result),
        *_rate_lines(result),
        _target_line(result),
        *_section_lines(result),
        *verdict_lines(result),
    ]


def _section_lines(result: RunResult) -> list[Line]:
    """Return what the scenario adds: a head and its lines for each section that has any."""
    return [
        line
        for section in result.sections
        if section.lines
        for line in (Line(section.title, FAINT), *section.lines)
    ]


def _count_line(result: RunResult, units: str) -> Line:
    stopped = " (interrupted)" if result.interrupted else ""
    return Line(
        f"{units}: {_sequences(result)} run, {result.sequences_ok} proven, "
        f"{result.sequences_failed} failed, "
        f"{result.sequences_unproven} unproven, in {result.wall_ns / 1e9:.2f} s{stopped}"
    )


def _sequences(result: RunResult) -> int:
    return result.sequences_ok + result.sequences_failed + result.sequences_unproven


def _check_lines(result: RunResult) -> list[Line]:
    lines = [Line(f"{'check':<14}{'passed':>10}{'failed':>10}{'unproven':>10}", FAINT)]
    for check, tally in result.ledger.tallies.items():
        if tally.skipped and not tally.spoken:
            lines.append(Line(f"{check.name:<14}not evaluated: {tally.skipped}", FAINT))
            continue
        style = PLAIN if tally.verdict is Verdict.VALID else BAD
        numbers = f"{tally.passed:>10}{tally.failed:>10}{tally.unproven:>10}"
        aside = f"  ({tally.skipped or 'never run'})" if tally.skipped or not tally.spoken else ""
        lines.append(Line(f"{check.name:<14}{numbers}{aside}", style))
    return lines


def _probe_lines(result: RunResult, units: str) -> list[Line]:
    if not result.ledger.probes:
        return []
    made = {probe.name: tally.made for probe, tally in result.ledger.probes.items() if tally.made}
    counts = ", ".join(f"{name} {count}" for name, count in made.items())
    return [Line(f"Probes, in how many {units.lower()}: {counts or 'none'}", FAINT)]


def not_evaluated_lines(result: RunResult) -> list[Line]:
    """Return a line on what was owed and not looked at, if there is such a thing."""
    missing = result.ledger.not_evaluated()
    if not missing:
        return []
    told = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
    return [Line(f"Not evaluated: {told}")]


def _latency_lines(result: RunResult) -> list[Line]:
    columns = ("count", "mean", "min", "p50", "p90", "p99", "p99.9", "max")
    head = "".join(f"{name:>10}" for name in columns)
    lines = [Line(f"{'latency [ms]':<16}{head}", FAINT)]
    for series, latencies in result.measures.latencies.items():
        summary = latencies.summary()
        if summary is None:
            continue
        values = (
            summary.mean_ms,
            summary.min_ms,
            summary.p50_ms,
            summary.p90_ms,
            summary.p99_ms,
            summary.p999_ms,
            summary.max_ms,
        )
        numbers = "".join(f"{value:>10.2f}" for value in values)
        aside = _bounded_text(summary)
        lines.append(Line(f"{series.name:<16}{summary.count:>10}{numbers}{aside}"))
    return lines if len(lines) > 1 else []


def _bounded_text(summary: LatencySummary) -> str:
    """Say how many of the latencies are only known to be longer than what was counted."""
    kinds = ((summary.censored, "without a usable answer"), (summary.clamped, "over an hour"))
    told = ", ".join(f"{count} {what}" for count, what in kinds if count)
    return f"  ({told}: each took at least that long)" if told else ""


def _rate_lines(result: RunResult) -> list[Line]:
    rates = ((one.name, rate.gigabytes_per_s()) for one, rate in result.measures.rates.items())
    shown = [f"{name} {rate:.2f} GB/s" for name, rate in rates if rate is not None]
    per = " (of one worker)" if result.config.workers > 1 else ""
    return [Line(f"Throughput{per}: {', '.join(shown)}")] if shown else []


def _target_line(result: RunResult) -> Line:
    server = result.server
    if server.embedded:
        kind = "bench-server's embedded server: no evidence about LMCache"
    else:
        kind = f"LMCache MP server {server.version or server.release or '(release unknown)'}"
    engine = result.config.engine
    if engine is None:
        return Line(f"Target: {kind}")
    memory = ", KV in GPU memory" if engine.mode == "gpu" else ""
    return Line(f"Target: {kind}, {server.transfer_mode or 'no transfer mode'} over "
                f"{server.transport or 'no transport'}{memory}")  # fmt: skip


def _first_failures(result: RunResult) -> list[Line]:
    """Return the first failure of each check that has one of its own, and what followed."""
    bad = {
        check: tally
        for check, tally in result.ledger.tallies.items()
        if tally.verdict is not Verdict.VALID and tally.texts
    }
    if not any(tally.cause for tally in bad.values()):
        return [Line(f"{check.name}: {tally.texts[0]}", BAD) for check, tally in bad.items()]
    lines = [Line(f"{c.name}: {tally.cause}", BAD) for c, tally in bad.items() if tally.cause]
    rest = {check: tally for check, tally in bad.items() if not tally.cause}
    if rest:
        count = sum(tally.following for tally in rest.values())
        lines.append(Line(_not_looked_at((check.name for check in rest), count), BAD))
    return lines


def verdict_lines(result: RunResult) -> list[Line]:
    """Return the verdict: one line, or the first failure of each check and how to replay it."""
    verdict = result.verdict
    missing = not_evaluated_lines(result) if _sequences(result) else []
    if verdict is Verdict.VALID:
        return [*missing, Line("RESULT: PASS, everything asked for was proven (exit 0)", GOOD)]
    word = "FAIL" if verdict is Verdict.INVALID else "UNPROVEN"
    lines = missing + _first_failures(result)
    figures = "; figures above are of a run that did not pass" if _sequences(result) else ""
    lines.append(Line(f"RESULT: {word} (exit 1){figures}", BAD))
    lines.append(Line(f"Replay: {replay_command(result)}"))
    return lines
