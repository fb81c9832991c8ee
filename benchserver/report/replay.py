"""The command that asks for a run again, made from every option that decides it: pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from benchserver.options.kinds import Flag
from benchserver.options.option import Option, Replayed, Tables, option_called, options_in
from benchserver.result import RunResult


def replay_command(result: RunResult) -> str:
    """Return the command that asks for the same work, judged by the same options, again."""
    config = result.config
    command = [config.command] if config.command else []
    return shlex.join(["bench-server", *command, *replay_words(config.tables, config.values())])


def replay_words(tables: Tables, values: Mapping[str, Any]) -> list[str]:
    """Return the words that ask for a configuration with these fields."""
    placed = [
        (option.replay.place, option)
        for option in options_in(tables)
        if isinstance(option.replay, Replayed) and option.field
    ]
    placed.sort(key=lambda pair: pair[0])
    return [word for _, option in placed for word in _words(option, tables, values)]


def _words(option: Option, tables: Tables, values: Mapping[str, Any]) -> list[str]:
    value = values[option.field]
    if option.excluded_by and values[option_called(tables, option.excluded_by).field]:
        return []
    if option.given_field and not values[option.given_field]:
        return []
    if isinstance(option.kind, Flag):
        return [option.name] if value == option.kind.gives else []
    always = isinstance(option.replay, Replayed) and option.replay.always
    if not always and value == option.default_in(values):
        return []
    return [option.name, option.text_of(value)]
