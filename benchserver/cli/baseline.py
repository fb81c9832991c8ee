"""Options of the baseline run to a RunConfig, and the run to an exit code."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from benchserver.cli.environment import from_environment
from benchserver.cli.httptoken import hide_from_process_list, read_token
from benchserver.cli.output import Output
from benchserver.config import (
    RunConfig,
    check_config,
    normalize_http_url,
    normalize_rpc_url,
)
from benchserver.ending import Ending
from benchserver.errors import FatalError, UsageError
from benchserver.limits import require, run_need, server_need
from benchserver.options.bench import BENCH
from benchserver.options.memory import TransferChoice, default_spec
from benchserver.options.option import fields_of, option_called, options_in
from shapespec import ShapeSpec, SpecError, parse_shape_spec, pool_bytes

if TYPE_CHECKING:
    from benchserver.cli.reports import Reports
    from benchserver.embedded import EmbeddedServer
    from benchserver.report.text import TextReporter
    from benchserver.result import RunResult

_SEED_BITS = 32


def build_config(options: Mapping[str, Any]) -> RunConfig:
    """Return the run's configuration; UsageError for what cannot be asked for."""
    fields = fields_of(BENCH, options)
    fields["spec"] = _spec(options)
    token = read_token(options["http_token"], options["http_token_file"])
    if token:
        hide_from_process_list(token)
    fields["http_token"] = token
    fields["rpc_url"] = normalize_rpc_url(fields["rpc_url"])
    fields["http_url"] = normalize_http_url(fields["http_url"])
    fields["transfer"] = _transfer(options)
    if fields["seed"] is None:
        fields["seed"] = secrets.randbits(_SEED_BITS)
    config = RunConfig(**fields)
    check_config(config)
    if config.expect_warm and options["seed"] is None:
        raise UsageError("--expect-warm needs --seed, the seed that the earlier run printed")
    if options["use_mla"] and not config.is_mla:
        raise UsageError(
            f"--use-mla needs kv_size 1 in every group, the shape spec is {config.spec.text}"
        )
    return config


def _transfer(options: Mapping[str, Any]) -> TransferChoice:
    """Return the mode to ask for: `auto` follows the transport that is required."""
    asked = TransferChoice(options["transfer_mode"] or TransferChoice.AUTO)
    if asked is TransferChoice.AUTO and options["require_transport"] in ("shm", "inline"):
        return TransferChoice.ENGINE_DRIVEN
    return asked


def _spec(options: Mapping[str, Any]) -> ShapeSpec:
    text = options["kvcache_shape_spec"]
    if text is None:
        text = default_spec(options["num_blocks"], options["block_size"])
    try:
        return parse_shape_spec(text)
    except SpecError as error:
        raise UsageError(f"--kvcache-shape-spec: {error}") from error


def _overridden(options: Mapping[str, Any], spec: ShapeSpec) -> list[str]:
    """Say which of --num-blocks and --block-size a given spec overrides."""
    if options["kvcache_shape_spec"] is None:
        return []
    pairs = (
        ("--num-blocks", options["num_blocks"], "NB", spec.num_blocks),
        ("--block-size", options["block_size"], "BS", spec.block_size),
    )
    return [
        f"{option} {given} is overridden by the shape spec's {name} = {value}"
        for option, given, name, value in pairs
        if given is not None and given != value
    ]


def _variables_used(ctx: click.Context) -> list[str]:
    """Say which options a variable has set: it may be one that somebody forgot."""
    names = from_environment(ctx)
    return [f"Options from the environment: {', '.join(names)}"] if names else []


def run_baseline(ctx: click.Context, options: Mapping[str, Any]) -> int:
    """Run, report, and return the exit code."""
    mode = _mode(ctx, options)
    config = build_config({**options, "mode": mode, "cuda_ipc": _cuda_ipc(ctx, options, mode)})
    _check_embedded(ctx, options)
    ending = ctx.ensure_object(Ending)

    from benchserver.cli.reports import open_reports
    from benchserver.report.text import TextReporter, make_printer
    from benchserver.scenarios.baseline.lines import WORDING

    with open_reports(options["json"], options["junit"], ending) as reports:
        output = Output(ending, to_stderr=reports.take_stdout)
        total = None if config.end is None else config.end - config.start
        reporter = TextReporter(make_printer(total, output.outlet), WORDING, quiet=options["quiet"])
        try:
            with ending.undoing(reporter.restore):
                for text in [*_variables_used(ctx), *_overridden(options, config.spec)]:
                    reporter.note(text)
                return _run(config, Run(options, reporter, reports, output, ending))
        finally:
            reporter.close()
            output.trouble()


@dataclass(frozen=True, slots=True)
class Run:
    """What a run is surrounded by."""

    options: Mapping[str, Any]
    reporter: TextReporter
    reports: Reports
    output: Output
    ending: Ending


def _run(config: RunConfig, run: Run) -> int:
    """Run with whatever it needs; reports are written before the embedded server is stopped."""
    with ExitStack() as needed:
        try:
            _require_limits(config)
            if config.mode == "gpu":
                _require_device()
            if run.options["embedded"]:
                server = needed.enter_context(_serving(config, run.ending))
                config = replace(config, rpc_url=server.rpc_url, http_url=server.http_url)
        except FatalError as error:
            from benchserver.check.run import new_ledger
            from benchserver.result import result_of_no_run
            from benchserver.scenarios.baseline.scenario import Baseline

            traits = Baseline(config).traits
            ledger = new_ledger(traits.checks, traits.probes)
            nothing = result_of_no_run(config, ledger, str(error), interrupted=run.ending.asked)
            raise FatalError("; ".join([str(error), *run.reports.write(nothing)])) from error
        # Loaded here: nothing heavy, nor libzmq, before the limits are known to do.
        from benchserver.scenarios.baseline.scenario import Baseline
        from benchserver.stage.process import run_to_end

        result = run_to_end(config, Baseline(config), run.reporter, run.ending)
        return _tell(result, run)


def _tell(result: RunResult, run: Run) -> int:
    """Write reports and summary, so that what is said last equals the exit code; return that."""
    run.reports.write(result)
    run.reporter.finish(result)
    return run.output.settled(result.exit_code, lambda trouble: run.reports.fail(result, trouble))


def _require_limits(config: RunConfig) -> None:
    """Look whether the system lets the run, and a server of its own, have what they need."""
    gpu = config.mode == "gpu"
    host_bytes = 0 if gpu else pool_bytes(config.spec)
    needs = [run_need(workers=config.tp_size, pool_bytes=host_bytes, gpu=gpu)]
    if config.own_server:
        from benchserver.embedded import embedded_l1_bytes

        l1_bytes = embedded_l1_bytes(config.spec, config.tp_size, config.num_tokens)
        instead = "a smaller --kvcache-shape-spec, --num-tokens or --tp-size"
        needs.append(server_need(l1_bytes=l1_bytes, clients=config.tp_size, instead=instead))
    require(*needs)


def _require_device() -> None:
    from benchserver.kv.gpu.requirements import require_device

    require_device()


def _serving(config: RunConfig, ending: Ending) -> AbstractContextManager[EmbeddedServer]:
    from benchserver.embedded import embedded_server

    gpu = config.mode == "gpu"
    return embedded_server(config.spec, config.tp_size, config.num_tokens, gpu=gpu, ending=ending)


def _check_embedded(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """Refuse an address beside --embedded: that server has its own."""
    for option in options_in(BENCH):
        if option.excluded_by and options["embedded"] and _is_given(ctx, option.key):
            raise UsageError(f"{option.name} and --embedded exclude each other")


def _mode(ctx: click.Context, options: Mapping[str, Any]) -> str:
    """Return where the pools lie: --embedded means cpu unless gpu was asked for."""
    mode: str = options["mode"]
    return "cpu" if options["embedded"] and not _is_given(ctx, "mode") else mode


def _cuda_ipc(ctx: click.Context, options: Mapping[str, Any], mode: str) -> str:
    """Return how a server gets at GPU memory; the default where that never matters.

    UsageError if the command line asks for it in a mode that has no use for it; a variable or a
    file may hold it for other runs.
    """
    asked: str = options["cuda_ipc"]
    if ctx.get_parameter_source("cuda_ipc") is click.core.ParameterSource.COMMANDLINE:
        if mode == "cpu":
            raise UsageError("--cuda-ipc is for --mode gpu, and this run keeps its KV on the host")
        return asked
    matters = mode == "gpu" and _transfer(options) is not TransferChoice.ENGINE_DRIVEN
    default: str = option_called(BENCH, "--cuda-ipc").default
    return asked if matters else default


def _is_given(ctx: click.Context, name: str) -> bool:
    """Tell whether an option's value comes from the user: variables and files count too."""
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
