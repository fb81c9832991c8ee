"""The command that asks for a run again, made from every option that decides it: pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from benchserver.config import RunConfig
from benchserver.options.bench import BENCH
from benchserver.options.kinds import Flag
from benchserver.options.option import Option, Replayed, options_in
from benchserver.result import RunResult


def replay_command(result: RunResult) -> str:
    """Return the command that asks for the same sequences, judged by the same options, again."""
    values = field_values(result.config)
    return shlex.join(["bench-server", *replay_words(options_in(BENCH), values)])


def field_values(config: RunConfig) -> dict[str, Any]:
    """Return the fields of a configuration by their names."""
    return {field.name: getattr(config, field.name) for field in fields(config)}


def replay_words(options: Iterable[Option], values: Mapping[str, Any]) -> list[str]:
    """Return the words that ask for a configuration with these fields."""
    placed = [
        (option.replay.place, option)
        for option in options
        if isinstance(option.replay, Replayed) and option.field
    ]
    placed.sort(key=lambda pair: pair[0])
    return [word for _, option in placed for word in _words(option, values)]


def _words(option: Option, values: Mapping[str, Any]) -> list[str]:
    value = values[option.field]
    if option.excluded_by and values[option.excluded_by]:
        return []
    if option.given_field and not values[option.given_field]:
        return []
    if isinstance(option.kind, Flag):
        return [option.name] if value == option.kind.gives else []
    always = isinstance(option.replay, Replayed) and option.replay.always
    if not always and value == option.default_in(values):
        return []
    return [option.name, option.text_of(value)]
