"""A scenario from the command line: its run, its reports, its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.asked import build_config, overridden
from benchserver.cli.environment import from_environment
from benchserver.cli.output import Output
from benchserver.config.run import RunConfig
from benchserver.ending import Ending
from benchserver.errors import FatalError
from benchserver.limits import Amount, require, require_shared_memory, run_need, server_need
from benchserver.options.engine import default_spec
from benchserver.scenarios.command import Command
from shapespec import ShapeSpec, parse_shape_spec, pool_bytes

if TYPE_CHECKING:
    from benchserver.cli.intervals import Intervals
    from benchserver.cli.record import Recorder
    from benchserver.cli.reports import Reports
    from benchserver.embedded import EmbeddedServer
    from benchserver.report.text import TextReporter
    from benchserver.result import RunResult
    from benchserver.stage.process import Watcher


def _variables_used(ctx: click.Context) -> list[str]:
    """Say which options a variable has set: it may be one that somebody forgot."""
    names = from_environment(ctx)
    return [f"Options from the environment: {', '.join(names)}"] if names else []


def play_scenario(command: Command[Any], ctx: click.Context, options: Mapping[str, Any]) -> int:
    """Run, report, and return the exit code."""
    config = build_config(command, ctx, options)
    ending = ctx.ensure_object(Ending)

    from benchserver.cli.intervals import open_intervals
    from benchserver.cli.reports import CONTENTS, open_reports
    from benchserver.cli.watching import metrics_served, watchers_of
    from benchserver.clock import RealClock
    from benchserver.report.screen import can_paint
    from benchserver.report.text import TextReporter, make_printer

    with open_reports(options, ending) as reports, open_intervals(options, CONTENTS) as intervals:
        recorder = _recorder() if reports.wanted else None
        output = Output(ending, to_stderr=reports.take_stdout)
        live = output.outlet.isatty() and can_paint(os.environ)
        printer = make_printer(output.outlet, live=live)
        reporter = TextReporter(printer, command.wording(), quiet=options["quiet"])
        try:
            with ending.undoing(reporter.restore), metrics_served(options, reporter) as served:
                for text in [*_variables_used(ctx), *overridden(config, options)]:
                    reporter.note(text)
                quiet = options["quiet"]
                watchers = watchers_of(reporter, printer, output, quiet=quiet, live=live)
                watchers += (*intervals.watchers(reporter.note, RealClock()), *served)
                run = Run(command, reporter, reports, output, ending, recorder, watchers, intervals)
                return _run(config, run)
        finally:
            reporter.close()
            output.trouble()


def _recorder() -> Recorder:
    from benchserver.cli.record import Recorder

    return Recorder(["bench-server", *sys.argv[1:]])


@dataclass(frozen=True, slots=True)
class Run:
    """What a run is surrounded by."""

    command: Command[Any]
    reporter: TextReporter
    reports: Reports
    output: Output
    ending: Ending
    recorder: Recorder | None
    """None: no report is asked for."""
    watchers: tuple[Watcher, ...]
    intervals: Intervals

    def watching(self, rpc_url: str) -> AbstractContextManager[None]:
        """Look at what the record of a run says of its server, while this lasts."""
        return nullcontext() if self.recorder is None else self.recorder.watching(rpc_url)

    def recorded(self, result: RunResult) -> RunResult:
        """Return the result with its record."""
        if self.recorder is None:
            return result
        return self.recorder.completed(result, self.ending.seconds_left)


def _run(config: RunConfig, run: Run) -> int:
    """Run with whatever it needs; reports are written before the embedded server is stopped."""
    with ExitStack() as needed:
        try:
            _require_limits(config)
            if config.engine is not None and config.engine.mode == "gpu":
                _require_device()
            if config.target.own_server:
                server = needed.enter_context(_serving(config, run.ending))
                config = _pointed_at(config, server)
        except FatalError as error:
            texts = [str(error), *_report_no_run(config, run, error)]
            raise FatalError("; ".join(texts)) from error
        # Loaded here: nothing heavy, nor libzmq, before the limits are known to do.
        from benchserver.stage.process import run_to_end

        scenario = run.command.scenario(config.own)
        with run.watching(config.target.rpc_url):
            result = run_to_end(config, scenario, run.reporter, run.ending, run.watchers)
        return _tell(result, run)


def _pointed_at(config: RunConfig, server: EmbeddedServer) -> RunConfig:
    target = replace(config.target, rpc_url=server.rpc_url, http_url=server.http_url)
    return replace(config, target=target)


def _report_no_run(config: RunConfig, run: Run, error: FatalError) -> list[str]:
    """Write the reports of a run that could not begin; return what cannot be written."""
    from benchserver.result import result_of_no_run

    ledger = run.command.scenario(config.own).traits.ledger()
    nothing = result_of_no_run(config, ledger, str(error), interrupted=run.ending.asked)
    return run.reports.write(run.recorded(nothing))


def _tell(result: RunResult, run: Run) -> int:
    """Write reports and summary, so that what is said last equals the exit code; return that."""
    run.intervals.settle(result, run.ending.seconds_left)
    result = run.recorded(result)
    run.reports.write(result)
    run.reporter.finish(result)
    return run.output.settled(result.exit_code, lambda trouble: run.reports.fail(result, trouble))


def _require_limits(config: RunConfig) -> None:
    """Look whether the system lets the run, and a server of its own, have what they need."""
    engine = config.engine
    gpu = engine is not None and engine.mode == "gpu"
    host_bytes = 0 if gpu or engine is None else pool_bytes(engine.spec)
    workers, own = max(1, config.workers), config.own
    instead = "a smaller --kvcache-shape-spec or --tp-size, or fewer clients"
    require_shared_memory(
        Amount(base=0, each=host_bytes, count=workers, thing="worker", instead=instead)
    )
    needs = [
        run_need(
            workers=workers,
            pool_bytes=host_bytes,
            gpu=gpu,
            clients=own.clients,
            in_flight=own.in_flight,
        )
    ]
    if config.target.own_server:
        from benchserver.embedded import embedded_l1_bytes

        l1_bytes = embedded_l1_bytes(*_load_of(config))
        instead = "a smaller --kvcache-shape-spec, --num-tokens or --tp-size"
        instead += " or fewer clients" if own.clients > 1 else ""
        needs.append(server_need(l1_bytes=l1_bytes, clients=workers, instead=instead))
    require(*needs)


def _load_of(config: RunConfig) -> tuple[ShapeSpec, int, int, int]:
    """Return what a server of our own must have room for: spec, ranks, tokens, requests at once."""
    engine = config.engine
    if engine is None:
        return parse_shape_spec(default_spec()), 1, 1, 1
    at_once = config.own.clients * config.own.in_flight
    return engine.spec, engine.tp_size, engine.num_tokens, at_once


def _require_device() -> None:
    from benchserver.kv.gpu.requirements import require_device

    require_device()


def _serving(config: RunConfig, ending: Ending) -> AbstractContextManager[EmbeddedServer]:
    from benchserver.embedded import embedded_server

    gpu = config.engine is not None and config.engine.mode == "gpu"
    return embedded_server(*_load_of(config), gpu=gpu, ending=ending)
