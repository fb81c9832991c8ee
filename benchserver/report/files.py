"""Reports as bytes: JSON for machines, JUnit XML with one case for each check for CI."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from benchserver.check.verdict import Tally, Verdict
from benchserver.options.option import Option, options_in
from benchserver.report.overtime import over_time_document
from benchserver.report.replay import replay_command
from benchserver.result import RunResult
from benchserver.stats.latency import LatencySummary

JSON_FORMAT = 1
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def result_document(result: RunResult) -> dict[str, Any]:
    """Return the JSON report; times in milliseconds, as their names say."""
    server, measures = result.server, result.measures
    missing = result.ledger.not_evaluated()
    total = result.sequences_ok + result.sequences_failed + result.sequences_unproven
    return {
        "format": JSON_FORMAT,
        "verdict": result.verdict.name.lower(),
        "exit_code": result.exit_code,
        "interrupted": result.interrupted,
        "wall_s": result.wall_ns / 1e9,
        "server": {**asdict(server), "embedded": server.embedded},
        "config": _config_facts(result),
        "sequences": {
            "attempted": total,
            "proven": result.sequences_ok,
            "failed": result.sequences_failed,
            "unproven": result.sequences_unproven,
        },
        "calls_attempted": measures.attempted,
        "checks": {
            check.name: {
                "verdict": tally.verdict.name.lower(),
                "passed": tally.passed,
                "failed": tally.failed,
                "unproven": tally.unproven,
                "not_evaluated": tally.skipped,
                "texts": tally.texts,
            }
            for check, tally in result.ledger.tallies.items()
        },
        "probes": {
            probe.name: {"made": tally.made, "not_evaluated": missing.get(probe.name, "")}
            for probe, tally in result.ledger.probes.items()
        },
        "latency": {
            series.name: _figures(summary)
            for series, latencies in measures.latencies.items()
            if (summary := latencies.summary()) is not None
        },
        "throughput_gb_per_s": {
            series.name: gb_per_s
            for series, rate in measures.rates.items()
            if (gb_per_s := rate.gigabytes_per_s())
        },
        "over_time": over_time_document(measures),
        "replay": replay_command(result),
        **{section.key: section.document for section in result.sections},
    }


def _figures(summary: LatencySummary) -> dict[str, float]:
    """Return the figures of a series; clamped and censored values only where there are any."""
    figures: dict[str, float] = asdict(summary)
    return {name: n for name, n in figures.items() if n or name not in ("clamped", "censored")}


def _config_facts(result: RunResult) -> dict[str, Any]:
    """Return what was asked for, by every option that decides a run; secrets are left out."""
    config = result.config
    values = config.values()
    facts = {
        option.json_key: _json_value(option, values[option.field])
        for option in options_in(config.tables)
        if option.json_key
    }
    given = (option.given_field for option in options_in(config.tables) if option.given_field)
    facts |= {name: values[name] for name in given}
    engine = config.engine
    if engine is not None:
        facts["mla"] = engine.is_mla
    if engine is not None and engine.mode == "gpu":
        facts["devices"] = [asdict(device) for device in result.devices]
    return facts


def _json_value(option: Option, value: Any) -> Any:
    """Return a value as JSON has it: numbers stay numbers."""
    return value if isinstance(value, int | float | None) else option.text_of(value)


def junit_document(result: RunResult) -> bytes:
    """Return JUnit XML: one case for each check, failed ones with their texts."""
    tallies, probes = result.ledger.tallies, _probe_cases(result)
    bad = sum(tally.verdict is not Verdict.VALID for tally in tallies.values())
    suite = ElementTree.Element(
        "testsuite",
        name="bench-server",
        tests=str(len(tallies) + len(probes)),
        failures=str(bad),
        errors="0",
        skipped=str(
            sum(_is_skipped(tally) for tally in tallies.values())
            + sum(bool(missing) for missing in probes.values())
        ),
        time=f"{result.wall_ns / 1e9:.3f}",
    )
    _add_properties(suite, result)
    for check, tally in tallies.items():
        case = ElementTree.SubElement(
            suite, "testcase", classname="bench-server", name=check.name, time="0"
        )
        if tally.verdict is not Verdict.VALID:
            message = _xml_text(tally.texts[0] if tally.texts else "never evaluated")
            failure = ElementTree.SubElement(case, "failure", message=message)
            failure.text = _xml_text(f"{check.meaning}\n" + "\n".join(tally.texts))
        elif _is_skipped(tally):
            ElementTree.SubElement(case, "skipped", message=_xml_text(tally.skipped))
    _add_probes(suite, result)
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def _probe_cases(result: RunResult) -> dict[str, str]:
    """Return the probes without a check of their own, and why each was not made, "" if it was."""
    ledger, missing = result.ledger, result.ledger.not_evaluated()
    checks = {check.name for check in ledger.tallies}
    return {p.name: missing.get(p.name, "") for p in ledger.probes if p.name not in checks}


def _add_probes(suite: ElementTree.Element, result: RunResult) -> None:
    for name, missing in _probe_cases(result).items():
        case = ElementTree.SubElement(
            suite, "testcase", classname="bench-server", name=name, time="0"
        )
        if missing:
            ElementTree.SubElement(case, "skipped", message=_xml_text(missing))


def _add_properties(suite: ElementTree.Element, result: RunResult) -> None:
    """Say where the KV lay, for runs on GPUs; figures; what sections say in words and numbers."""
    facts = _device_facts(result) | _figure_facts(result)
    for section in result.sections:
        facts |= _facts_in(section.document, section.key)
    if not facts:
        return
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=_xml_text(name), value=_xml_text(value))


def _figure_facts(result: RunResult) -> dict[str, str]:
    """Return percentiles and rates of every series, and the command that asks for the run again."""
    facts = {"replay": replay_command(result)}
    for series, latencies in result.measures.latencies.items():
        if (of := latencies.summary()) is not None:
            figures = {"p50_ms": of.p50_ms, "p99_ms": of.p99_ms, "max_ms": of.max_ms}
            facts[f"latency.{series.name}.count"] = str(of.count)
            facts |= {f"latency.{series.name}.{n}": f"{ms:.3f}" for n, ms in figures.items()}
    for series, rate in result.measures.rates.items():
        if gb_per_s := rate.gigabytes_per_s():
            facts[f"throughput_gb_per_s.{series.name}"] = f"{gb_per_s:.3f}"
    return facts


def _device_facts(result: RunResult) -> dict[str, str]:
    engine = result.config.engine
    if engine is None or engine.mode == "cpu":
        return {}
    facts = {"mode": engine.mode, "cuda_ipc": engine.cuda_ipc}
    return facts | {f"rank {d.rank}": f"cuda:{d.number} {d.name} {d.uuid}" for d in result.devices}


def _facts_in(document: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return the single values of a document, by their path in it; its lists are JSON's alone."""
    facts = dict[str, str]()
    for name, value in document.items():
        path = f"{prefix}.{name}"
        if isinstance(value, Mapping):
            facts |= _facts_in(value, path)
        elif not isinstance(value, list | tuple):
            facts[path] = value if isinstance(value, str) else json.dumps(value)
    return facts


def _is_skipped(tally: Tally) -> bool:
    return bool(tally.skipped) and tally.verdict is Verdict.VALID and not tally.passed


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("?", text)


def json_bytes(result: RunResult) -> bytes:
    """Return the JSON report as it is written."""
    return json.dumps(result_document(result), indent=2).encode() + b"\n"
