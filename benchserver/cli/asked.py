"""Options of a scenario to what its run is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from benchserver.cli.httptoken import hide_from_process_list, read_token
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig, check_config
from benchserver.config.target import Target
from benchserver.config.urls import normalize_http_url, normalize_rpc_url
from benchserver.config.watch import Watch
from benchserver.errors import UsageError
from benchserver.options.engine import ENGINE, TransferChoice, default_spec
from benchserver.options.option import Tables, fields_of, option_called, options_in
from benchserver.scenarios.command import Command
from shapespec import ShapeSpec, SpecError, parse_shape_spec

_SEED_BITS = 32

T = TypeVar("T")
Options = Mapping[str, Any]


def build_config(command: Command[Any], ctx: click.Context, options: Options) -> RunConfig:
    """Return the run's configuration; UsageError for what cannot be asked for."""
    tables = command.tables
    if ENGINE in tables:
        options = {**options, "mode": _mode(ctx, options)}
        options = {**options, "cuda_ipc": _cuda_ipc(ctx, options)}
    values = fields_of(tables, options)
    values["http_token"] = _token(options)
    values["rpc_url"] = normalize_rpc_url(values["rpc_url"])
    values["http_url"] = normalize_http_url(values["http_url"])
    if ENGINE in tables:
        values |= {"spec": _spec(options), "transfer": _transfer(options)}
        if values["seed"] is None:
            values["seed"] = secrets.randbits(_SEED_BITS)
    own = _part(command.part(), values)
    config = RunConfig(
        command=command.name,
        tables=tables,
        target=_part(Target, values),
        engine=command.engine(own, _part(Engine, values)) if ENGINE in tables else None,
        own=own,
        watch=_part(Watch, values),
    )
    check_config(config)
    _check_company(tables, ctx, options)
    if config.engine is not None:
        _check_mla(config.engine, options)
    return config


def overridden(config: RunConfig, options: Options) -> list[str]:
    """Say which of --num-tokens, --num-blocks and --block-size a workload or a spec overrides."""
    if config.engine is None:
        return []
    asked, tokens = options["num_tokens"], config.engine.num_tokens
    texts = []
    if asked not in (None, tokens):
        texts.append(
            f"--num-tokens {asked} is overridden by the workload's longest request of {tokens}"
        )
    if options["kvcache_shape_spec"] is None:
        return texts
    spec = config.engine.spec
    pairs = (
        ("--num-blocks", options["num_blocks"], "NB", spec.num_blocks),
        ("--block-size", options["block_size"], "BS", spec.block_size),
    )
    return texts + [
        f"{option} {given} is overridden by the shape spec's {name} = {value}"
        for option, given, name, value in pairs
        if given is not None and given != value
    ]


def _part(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the part of a configuration whose fields are among these values."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: values[name] for name in names})


def _token(options: Options) -> str:
    token = read_token(options["http_token"], options["http_token_file"])
    if token:
        hide_from_process_list(token)
    return token


def _transfer(options: Options) -> TransferChoice:
    """Return the mode to ask for: `auto` follows the transport that is required."""
    asked = TransferChoice(options["transfer_mode"] or TransferChoice.AUTO)
    if asked is TransferChoice.AUTO and options["require_transport"] in ("shm", "inline"):
        return TransferChoice.ENGINE_DRIVEN
    return asked


def _spec(options: Options) -> ShapeSpec:
    text = options["kvcache_shape_spec"]
    if text is None:
        text = default_spec(options["num_blocks"], options["block_size"])
    try:
        return parse_shape_spec(text)
    except SpecError as error:
        raise UsageError(f"--kvcache-shape-spec: {error}") from error


def _mode(ctx: click.Context, options: Options) -> str:
    """Return where the pools lie: --embedded means cpu unless gpu was asked for."""
    mode: str = options["mode"]
    return "cpu" if options["embedded"] and not _is_given(ctx, "mode") else mode


def _cuda_ipc(ctx: click.Context, options: Options) -> str:
    """Return how a server gets at GPU memory; the default where that never matters.

    UsageError if the command line asks for it in a mode that has no use for it; a variable or a
    file may hold it for other runs.
    """
    asked: str = options["cuda_ipc"]
    if ctx.get_parameter_source("cuda_ipc") is click.core.ParameterSource.COMMANDLINE:
        if options["mode"] == "cpu":
            raise UsageError("--cuda-ipc is for --mode gpu, and this run keeps its KV on the host")
        return asked
    matters = options["mode"] == "gpu" and _transfer(options) is not TransferChoice.ENGINE_DRIVEN
    default: str = option_called((ENGINE,), "--cuda-ipc").default
    return asked if matters else default


def _check_mla(engine: Engine, options: Options) -> None:
    if options["use_mla"] and not engine.is_mla:
        raise UsageError(
            f"--use-mla needs kv_size 1 in every group, the shape spec is {engine.spec.text}"
        )


def _check_company(tables: Tables, ctx: click.Context, options: Options) -> None:
    """Refuse an option beside one that excludes it, or without one that it needs."""
    for option in options_in(tables):
        if option.needs and options[option.key] and _is_given(ctx, option.key):
            name, why = option.needs
            needed = options[option_called(tables, name).key]
            if needed is None or needed is False:  # 0 is a value
                raise UsageError(f"{option.name} needs {name}, {why}")
        if option.excluded_by and _is_given(ctx, option.key):
            other = option_called(tables, option.excluded_by)
            if options[other.key]:
                raise UsageError(f"{option.name} and {other.name} exclude each other")


def _is_given(ctx: click.Context, name: str) -> bool:
    """Tell whether an option's value comes from the user: variables and files count too."""
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
