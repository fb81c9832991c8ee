"""What a run has come to by now, in plain lines: one for a log, some for who asks.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from benchserver.check.verdict import Verdict
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.monitor.snapshot import HitsNow, OperationNow, Snapshot
from benchserver.report.figures import (
    clock_text,
    ms_text,
    rate_text,
    seconds_left,
    share_done,
    value_text,
    verdict_text,
)

VERDICT_STYLES = {Verdict.VALID: GOOD, Verdict.UNKNOWN: PLAIN, Verdict.INVALID: BAD}


def now_line(now: Snapshot) -> str:
    """Return one line on a run, for a log that gets one now and then."""
    parts = [
        f"{counts_text(now)}, {rate_text(now.units_per_s)}/s",
        *_slowest(now),
        *([] if now.hits is None or now.hits.ratio is None else [f"hits {now.hits.ratio:.1%}"]),
        *(_memory_texts(now)),
        *troubles(now),
        verdict_text(now),
    ]
    return f"[{clock_text(now.at_s)}] {'; '.join(parts)}"


def now_lines(now: Snapshot) -> list[Line]:
    """Return a summary of a run that goes on, for who asks for one."""
    return [
        _head(now),
        Line(f"Verdict so far: {verdict_text(now)}", VERDICT_STYLES[now.verdict]),
        Line(f"Work: {counts_text(now)}, {rate_text(now.units_per_s)}/s; {now.calls} calls"),
        *_hit_lines(now.hits),
        *operation_lines(now),
        *([Line(f"Throughput: {rates}")] if (rates := gb_text(now)) else []),
        *_resource_lines(now),
        *(Line(text[0].upper() + text[1:], BAD) for text in troubles(now)),
        *failure_lines(now),
    ]


def counts_text(now: Snapshot) -> str:
    """Return how many units of work were concluded, and how."""
    of = "" if now.total_units is None else f" of {now.total_units}"
    return f"{now.proven}{of} {now.unit}s proven, {now.failed} failed, {now.unproven} unproven"


def gb_text(now: Snapshot) -> str:
    """Return the rates of transfers, or ""."""
    return ", ".join(f"{name} {rate:.2f} GB/s" for name, rate in now.gb_per_s.items())


def failure_lines(now: Snapshot) -> list[Line]:
    """Return what failed, by check, and the last lines on it."""
    if not now.failed_checks and not now.failures:
        return []
    counts = ", ".join(f"{name} {count}" for name, count in now.failed_checks.items())
    return [
        Line(f"Findings that are not good, by check: {counts or 'none'}", BAD),
        *(Line(f"  {text}", BAD) for text in now.failures),
    ]


def operation_lines(now: Snapshot) -> list[Line]:
    """Return the table of operations; the figures of the last minute before those of the run."""
    shown = [one for one in now.operations if one.count]
    if not shown:
        return []
    columns = ("count", "errors", "1/s", "p50", "p99", "p99.9", "run p50", "run p99")
    head = "".join(f"{name:>10}" for name in columns)
    return [Line(f"{'last minute [ms]':<18}{head}", FAINT), *map(_operation_line, shown)]


def _operation_line(one: OperationNow) -> Line:
    figures = (one.p50_ms, one.p99_ms, one.p999_ms, one.total_p50_ms, one.total_p99_ms)
    cells = (str(one.count), str(one.errors), rate_text(one.rate_per_s), *map(ms_text, figures))
    return Line(f"{one.name:<18}" + "".join(f"{cell:>10}" for cell in cells))


def _head(now: Snapshot) -> Line:
    left_s = seconds_left(now)
    left = "" if left_s is None else f", about {clock_text(left_s)} left"
    share = share_done(now)
    done = "" if share is None else f", {share:.0%} done"
    return Line(f"After {clock_text(now.at_s)} ({now.phase}{done}){left}; it is {now.time}")


def _hit_lines(hits: HitsNow | None) -> list[Line]:
    if hits is None or hits.ratio is None:
        return []
    text = f"{hits.hit_chunks} of {hits.asked_chunks} chunks ({hits.ratio:.1%})"
    return [Line(f"LOOKUP found {text}")]


def _resource_lines(now: Snapshot) -> Iterator[Line]:
    """Yield a line for each that grows; of all others, one for those of which the same is said."""
    alike: dict[str, list[str]] = {}
    for resource in now.resources:
        reason = f" ({resource.reason})" if resource.reason else ""
        said, value = f"{resource.verdict}{reason}", f"{resource.name} {value_text(resource)}"
        if resource.verdict == "grows":
            yield Line(f"Grows: {value}{reason}", BAD)
        else:
            alike.setdefault(said, []).append(value)
    for said, values in alike.items():
        yield Line(f"{said[0].upper()}{said[1:]}: {', '.join(values)}")


def _slowest(now: Snapshot) -> list[str]:
    """Return the p99 of each operation of the last minute, as one part of a line."""
    known = [f"{one.name} {one.p99_ms:.2f}" for one in now.operations if one.p99_ms is not None]
    return [f"p99 ms: {', '.join(known)}"] if known else []


def _memory_texts(now: Snapshot) -> Iterator[str]:
    for resource in now.resources:
        grows = " grows" if resource.verdict == "grows" else ""
        if grows or (resource.unit == "bytes" and resource.value):
            yield f"{resource.name} {value_text(resource)}{grows}"


def troubles(now: Snapshot) -> list[str]:
    """Return what was wrong with the way to the server, if anything was."""
    stalled = f"nothing was heard for {now.stalled_s:.0f} s" if now.stalled_s >= 1 else ""
    times = "once" if now.reconnects == 1 else f"{now.reconnects} times"
    return [text for text in (stalled, f"connected again {times}" * bool(now.reconnects)) if text]
