"""The page of one run, out of its JSON report.

Charts whose figures a report does not have are left out, and a line says which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from benchserver.page import charts
from benchserver.page.charts import Chart
from benchserver.page.markup import Html, element, facts, folded, joined, number, table, text
from benchserver.page.overtime import OverTime, over_time
from benchserver.page.page import Head, Part, Tone, page
from benchserver.page.reading import (
    Document,
    as_number,
    figure,
    items,
    mapping,
    rows_of_numbers,
    words,
)

_VERDICTS: dict[str, tuple[Tone, str, str]] = {
    "valid": ("valid", "PASS", "Everything that was asked for was proven."),
    "invalid": (
        "invalid",
        "FAIL",
        "Something failed. Figures below are of a run that did not pass.",
    ),
    "unknown": (
        "unknown",
        "UNPROVEN",
        "Nothing failed, but something that was asked for is unproven.",
    ),
}
_NO_VERDICT: tuple[Tone, str, str] = (
    "unknown",
    "NO VERDICT",
    "The report names none that we know.",
)
_WORDS = {"valid": "passed", "invalid": "failed", "unknown": "unproven"}
_OWN = ("lag", "queued")
_LAGS = ("visibility lag",)


def html_report(document: Document) -> bytes:
    """Return the page of a run; whatever the report holds, it is a page."""
    seen = over_time(document)
    drawn, absent = _charts(document, seen)
    parts = [
        Part(heading="What was checked", inner=_checks(document)),
        Part(heading="Measured", inner=_measured(drawn, absent, document)),
        Part(heading="Run", inner=_folded(document)),
    ]
    return page(_head(document), parts)


def latencies_of(document: Document) -> dict[str, dict[str, float]]:
    """Return the figures of every series, as far as they are numbers."""
    return {
        str(name): {key: n for key, value in row.items() if (n := as_number(value)) is not None}
        for name, row in mapping(document, "latency").items()
        if isinstance(row, Mapping)
    }


# On top


def _head(document: Document) -> Head:
    tone, word, sentence = _VERDICTS.get(words(document, "verdict"), _NO_VERDICT)
    sentences = [sentence, *_why(document), *_not_looked_at(document)]
    if document.get("interrupted") is True:
        sentences.append("A signal ended the run: it says what was done until then.")
    server = mapping(document, "server")
    version = words(server, "version")
    met = f"bench-server against {version}" if version else "bench-server met no server"
    address = words(server, "rpc_url") or "an unknown address"
    if server.get("embedded") is True:
        sentences.append("The server was bench-server's embedded one: no evidence about LMCache.")
    return Head(
        title=f"{met} at {address}",
        tone=tone,
        verdict=word,
        sentences=sentences,
        figures=list(_key_figures(document)),
    )


def _why(document: Document) -> Iterator[str]:
    """Say which checks failed, or else which stayed unproven, and the first text on each."""
    checks = mapping(document, "checks").items()
    for verdict in ("invalid", "unknown"):
        found = [(name, check) for name, check in checks if words(check, "verdict") == verdict]
        for name, check in found[:3]:
            texts = items(check, "texts")
            yield f"{name}: {texts[0] if texts else _WORDS[verdict]}"[:400]
        if len(found) > 3:
            yield f"{len(found) - 3} more checks {_WORDS[verdict]}."
        if found:
            return


def _not_looked_at(document: Document) -> Iterator[str]:
    named = [
        str(name)
        for name, check in mapping(document, "checks").items()
        if words(check, "not_evaluated") and not figure(check, "passed")
    ]
    if named:
        yield f"Not looked at: {', '.join(named)}."
    measurement = mapping(document, "load", "measurement")
    if measurement.get("valid") is False:
        limit = words(measurement, "limit") or "unknown"
        yield f"As a measurement it is not valid: the limit was {limit}."


def _key_figures(document: Document) -> Iterator[tuple[str, str]]:
    units = mapping(document, "sequences")
    if (attempted := figure(units, "attempted")) is not None:
        proven = figure(units, "proven") or 0
        yield "proven", f"{number_of(proven)} of {number_of(attempted)}"
    if (wall_s := figure(document, "wall_s")) is not None:
        yield "time", _duration(wall_s)
    if (rate := figure(document, "load", "rate_achieved_per_s")) is not None:
        yield "requests a second", number(rate)
    if (ratio := figure(document, "load", "hits", "measured", "ratio")) is not None:
        yield "hit ratio", f"{ratio:.1%}"
    latencies = latencies_of(document)
    for name in ("RETRIEVE", "STORE"):
        if (p99 := latencies.get(name, {}).get("p99_ms")) is not None:
            yield f"{name} p99", f"{number(p99)} ms"
    for name, value in mapping(document, "throughput_gb_per_s").items():
        if (rate := as_number(value)) is not None:
            yield f"{name}", f"{number(rate)} GB/s"
    if seed := words(document, "config", "seed"):
        yield "seed", seed


def number_of(value: float) -> str:
    """Return a count."""
    return f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes, left = divmod(seconds, 60)
    if seconds < 120:
        return f"{number(seconds)} s"
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left:.0f} s"


# Checks


def _checks(document: Document) -> Html:
    checks = mapping(document, "checks")
    if not checks:
        return element("p", text("The report names no check."), class_="absent")
    order = {"invalid": 0, "unknown": 1}
    ranked = sorted(checks.items(), key=lambda one: order.get(words(one[1], "verdict"), 2))
    told = [_check(str(name), mapping(check)) for name, check in ranked]
    probes = [
        (str(name), int(figure(probe, "made") or 0), words(probe, "not_evaluated"))
        for name, probe in mapping(document, "probes").items()
    ]
    inner = element("div", joined(told), class_="checks")
    if probes:
        made = table("Probes", ("probe", "made", "why not"), probes)
        inner = joined((inner, folded("Probes that the run made", made)))
    return inner


def _check(name: str, check: Document) -> Html:
    verdict = words(check, "verdict")
    left_out = words(check, "not_evaluated")
    counts = [(word, int(figure(check, word) or 0)) for word in ("passed", "failed", "unproven")]
    spoken = any(count for _, count in counts)
    state = _WORDS.get(verdict, verdict) if spoken or not left_out else "not looked at"
    tone = verdict if verdict in _WORDS and (spoken or not left_out) else "none"
    heading = joined((text(name), Html(" "), element("span", text(state), class_=f"word-{tone}")))
    told = [", ".join(f"{count} {word}" for word, count in counts if count)] if spoken else []
    told += [f"left out: {left_out}"] if left_out else []
    parts = [element("h3", heading), *(element("p", text("; ".join(told))) for _ in told[:1])]
    texts = items(check, "texts")
    if texts:
        evidence = joined(element("li", text(line)) for line in texts)
        parts.append(element("ul", evidence, class_="evidence"))
    return element("div", joined(parts), class_="check bad" if texts else "check")


# Charts


def _charts(document: Document, seen: OverTime | None) -> tuple[list[Chart], list[str]]:
    """Return the charts that can be drawn, and what a report of this kind has none of."""
    found: list[tuple[str, Sequence[Chart | None]]] = [
        ("latency by operation", [charts.percentiles("latency", [("", latencies_of(document))])]),
        ("latency over time", _heats(seen)),
        ("throughput over time", _throughput(seen)),
        ("failures over time", [_failures(seen)]),
    ]
    if "load" in document:
        found.append(("hits against the ideal", [_hits(document)]))
    found.append(("memory and other resources", _growth(document)))
    drawn = [chart for _, some in found for chart in some if chart is not None]
    absent = [name for name, some in found if not any(some)]
    if _resources(document) and absent[-1:] == ["memory and other resources"]:
        absent.pop()  # none has changed: the table says so
    return drawn, absent


def _heats(seen: OverTime | None) -> list[Chart | None]:
    if seen is None:
        return []
    names = sorted(seen.cells, key=lambda name: name in _OWN)
    return [charts.heat(f"heat-{place}", name, seen) for place, name in enumerate(names)]


def _throughput(seen: OverTime | None) -> list[Chart | None]:
    if seen is None:
        return []
    middle = [(slot + 0.5) * seen.slot_s for slot in range(seen.slots)]
    units = [sum(seen.units.get(slot, (0, 0, 0))) / seen.slot_s for slot in range(seen.slots)]
    mean = sum(units) / len(units)
    moved = [
        (name, [(at, found.get(slot, 0) / seen.slot_s / 1e9) for slot, at in enumerate(middle)])
        for name, found in seen.moved.items()
    ]
    return [
        charts.lines(
            "units", "Units of work over time", "a second",
            [("concluded", list(zip(middle, units, strict=True)))],
            f"{number(mean)} a second on average, {number(max(units))} in the best slot and "
            f"{number(min(units))} in the worst.",
        ),
        charts.lines(
            "bytes", "Bytes moved over time", "GB/s of the run's time", moved,
            "Bytes of KV moved in each slot by its length: what the run asked for, not what the "
            "server could do.",
        ),
    ]  # fmt: skip


def _failures(seen: OverTime | None) -> Chart | None:
    if seen is None or not seen.units:
        return None
    middle = [(slot + 0.5) * seen.slot_s for slot in range(seen.slots)]
    counted = {
        word: [seen.units.get(slot, (0, 0, 0))[place] for slot in range(seen.slots)]
        for place, word in ((1, "failed"), (2, "unproven"))
    }
    totals = {word: sum(counts) for word, counts in counted.items()}
    told = (
        "Nothing failed and nothing stayed unproven."
        if not any(totals.values())
        else (
            f"{number_of(totals['failed'])} units failed, "
            f"{number_of(totals['unproven'])} are unproven."
        )
    )
    return charts.lines(
        "failures", "Failures over time", "units a slot",
        [(word, list(zip(middle, counts, strict=True))) for word, counts in counted.items()], told,
    )  # fmt: skip


def _hits(document: Document) -> Chart | None:
    hits = mapping(document, "load", "hits")
    named = (
        ("measured", "measured"),
        ("server", "by the server's count"),
        ("ideal_infinite", "a cache that never forgets"),
        ("ideal_lru", "an LRU cache of its size"),
    )
    values = [
        (label, 100 * ratio)
        for key, label in named
        if (ratio := figure(mapping(hits, key), "ratio")) is not None
    ]
    told = "; ".join(f"{label}: {value:.1f} %" for label, value in values) + "."
    return charts.bars("hits", "Hits against the ideal", "% of tokens", values, told, 100.0)


def _resources(document: Document) -> list[Document]:
    return [one for one in items(document, "growth", "resources") if isinstance(one, Mapping)]


def _growth(document: Document) -> list[Chart | None]:
    """Return a chart of each resource that changed; what all of them did stands in a table."""
    return [
        charts.lines(
            f"growth-{place}", f"{words(one, 'name') or 'a resource'} over time", unit,
            [("", points)], told,
        )
        for place, one in enumerate(_resources(document))
        for unit, points in (_samples(one),)
        for told in (f"{words(one, 'verdict') or 'no verdict'}: {words(one, 'reason')}",)
        if len({value for _, value in points}) > 1
    ]  # fmt: skip


def _samples(resource: Document) -> tuple[str, list[tuple[float, float]]]:
    """Return the unit of a resource, and what was in use when."""
    scale, unit = (1e6, "MB") if words(resource, "unit") == "bytes" else (1.0, "count")
    rows = rows_of_numbers(items(resource, "samples"), 2)
    return unit, [(at, value / scale) for at, value in rows]


def _growth_table(document: Document) -> Html:
    """Return what became of every resource, in words."""
    rows = []
    for one in _resources(document):
        unit, points = _samples(one)
        last = f"{number(points[-1][1])} {unit}" if points else None
        rows.append((words(one, "name"), last, words(one, "verdict"), words(one, "reason")))
    return (
        table("Resources", ("resource", "last seen", "verdict", "why"), rows) if rows else Html("")
    )


def _measured(drawn: Sequence[Chart], absent: Sequence[str], document: Document) -> Html:
    parts = [element("div", joined(chart.markup() for chart in drawn), class_="charts")]
    parts.append(_growth_table(document))
    if absent:
        told = f"The report has no figures for: {', '.join(absent)}."
        parts.append(element("p", text(told), class_="absent"))
    if latencies := latencies_of(document):
        parts.append(folded("All latencies", charts.latency_table([("", latencies)])))
    return joined(parts)


# Folded away


def _folded(document: Document) -> Html:
    parts = []
    if replay := words(document, "replay"):
        told = element("p", text("The same work again:"))
        parts.append(joined((told, element("pre", text(replay)))))
    named = (
        ("config", "Configuration: every option that decides the run"),
        ("run", "Record of the run: versions, server, memory"),
        ("environment", "Environment: the machine"),
    )
    for key, summary in named:
        if found := mapping(document, key):
            parts.append(folded(summary, facts(_flat(found))))
    other = {
        str(key): value
        for key, value in document.items()
        if key in ("load", "growth", "dropped", "reconnects") and isinstance(value, Mapping)
    }
    for key, value in other.items():
        slim = {name: part for name, part in value.items() if name not in ("seconds", "resources")}
        if slim:
            parts.append(folded(f"All of “{key}” in the report", facts(_flat(slim))))
    return joined(parts)


def _flat(found: Document, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value with the path to it."""
    for key, value in found.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(cast(Document, value), f"{name}.")
        elif isinstance(value, str):
            yield name, value
        else:
            yield name, json.dumps(value, ensure_ascii=False)
