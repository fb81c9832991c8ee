"""One run: its server, its load as a child process, and the record that comes of both."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from benchserver.clock import NS_PER_S, RealClock
from benchserver.errors import FatalError, one_line
from benchserver.sweep.cells import Run, Value, text_of
from benchserver.sweep.figures import figures_of
from benchserver.sweep.guarded import started
from benchserver.sweep.records import Record, Records, read_report
from benchserver.sweep.server import HOST, Ports, Serving, command_of, ports_for, serving

LOAD = (sys.executable, "-m", "benchserver", "load")
"""The command that makes a load."""

STARTING_S = 60.0
"""For contact, workers and pools, and for the end, beyond what is asked."""

UNKNOWN_S = 600.0
"""For a load that says how many requests it makes, and not how fast."""

_TOLD_S = 3.3
"""What a load gets to end once it is told; it promises three seconds."""

_SEED = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How runs are made.  `cell_timeout_s` None: computed from what is asked."""

    load: Sequence[str]
    environment: Mapping[str, str]
    serving: Serving
    seed: int
    cell_timeout_s: float | None


def planned_s(load: Mapping[str, Value]) -> float | None:
    """Return how long a load goes on by its own options; None if they do not say."""
    warmup_s = _seconds(load.get("warmup"), 0.0)
    if "duration" in load:
        return warmup_s + _seconds(load["duration"], 0.0)
    rate = text_of(load.get("rate", ""))
    if rate.count(":") == 2:
        first, last, step = (_seconds(part, 1.0) for part in rate.split(":"))
        steps = 1 + abs(last - first) / abs(step or 1.0)
        return steps * _seconds(load.get("step-duration"), 10.0)
    if "requests" in load and rate:
        return _seconds(load["requests"], 0.0) / (_seconds(rate, 1.0) or 1.0)
    return None


def has_end(load: Mapping[str, Value]) -> bool:
    """Tell whether a load ends by itself."""
    ramp = ":" in text_of(load.get("rate", ""))
    trace = text_of(load.get("workload", "")).startswith("trace:")
    return "duration" in load or "requests" in load or ramp or trace


def deadline_s(load: Mapping[str, Value], asked_s: float | None) -> float:
    """Return how long the process of a load may take."""
    if asked_s is not None:
        return asked_s
    planned = planned_s(load)
    return STARTING_S + (UNKNOWN_S if planned is None else planned)


def options_words(load: Mapping[str, Value]) -> list[str]:
    """Return options as words of a command line."""
    words: list[str] = []
    for name, value in load.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
        else:
            words.append(f"--{name}={text_of(value)}")
    return words


async def make(run: Run, records: Records, how: Launching) -> Record:
    """Run a cell once, and return its record, whatever came of it."""
    clock = RealClock()
    started_ns = clock.now_ns()
    words, server = _words(run, how), run.cell.server
    exit_code: int | None = None
    trouble, report = "", dict[str, Any]()
    try:
        async with AsyncExitStack() as open_:
            if server:
                ports = ports_for(server)
                server = command_of(server, ports)
                log = records.log(run.name, "server")
                await open_.enter_async_context(serving(server, ports, log, how.serving))
                words += _addresses(ports)
            exit_code, trouble, report = await _load(run, words, records, how)
    except FatalError as error:
        trouble = str(error)
    return Record(
        name=run.name,
        cell={"load": dict(run.cell.load), "varied": dict(run.cell.varied)},
        command=tuple(words),
        server=server,
        seed=int(run.cell.load.get(_SEED, run.seed(how.seed))),
        exit_code=exit_code,
        trouble=trouble,
        wall_s=(clock.now_ns() - started_ns) / NS_PER_S,
        report=report,
    )


def _words(run: Run, how: Launching) -> list[str]:
    words = [*how.load, *options_words(run.cell.load)]
    return words if _SEED in run.cell.load else [*words, f"--{_SEED}={run.seed(how.seed)}"]


def _addresses(ports: Ports) -> list[str]:
    rpc = [f"--rpc-url=tcp://{HOST}:{ports.rpc}"]
    return rpc if ports.http is None else [*rpc, f"--url=http://{HOST}:{ports.http}"]


async def _load(
    run: Run, words: list[str], records: Records, how: Launching
) -> tuple[int | None, str, dict[str, Any]]:
    """Run the load; return its exit code, what kept it from a report, and that report."""
    log = records.log(run.name, "load")
    path = log.with_suffix(".json")
    path.unlink(missing_ok=True)
    within_s = deadline_s(run.cell.load, how.cell_timeout_s)
    trouble = ""
    async with started([*words, f"--json={path}"], log, how.environment) as child:
        try:
            if await child.wait(within_s) is None:
                trouble = f"the load was ended: it took longer than {within_s:g} s (--cell-timeout)"
        finally:
            await child.stop(_TOLD_S)
        code, said = child.exit_code, child.last_words()
    report = dict[str, Any]()
    try:
        report = read_report(path)
        figures_of(report)
    except ValueError as error:
        reason = _told(report) or f"{one_line(error, 200)}; it said: {said}"
        return code, trouble or f"the load ended with code {code}: {reason} (all of it: {log})", {}
    finally:
        with suppress(OSError):
            path.unlink()
    if not trouble and report["exit_code"] != code:
        trouble = f"the load ended with code {code}, and its report says {report['exit_code']}"
    return code, trouble, report


def _told(report: Mapping[str, Any]) -> str:
    """Return the first failure that a report tells, "" if there is none."""
    with suppress(KeyError, TypeError, AttributeError):
        for tally in report["checks"].values():
            if tally["texts"]:
                return one_line(tally["texts"][0])
    return ""


def _seconds(value: Value | None, default: float) -> float:
    """Return an option's number, which stands there as a number or as text."""
    try:
        return default if value is None else float(value)
    except ValueError:
        return default
