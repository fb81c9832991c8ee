"""A matrix file: what is fixed, what varies, and how cells come of it.  Pure.

    mode = "product"            # or "one-at-a-time", from [base]
    repetitions = 3
    [load]                      # options of `bench-server load`
    duration = 10
    [vary]                      # options of the load, or variables of the server's command
    concurrency = [1, 4]
    chunk_size = [256, 512]
    [server]
    command = "serve --chunk-size {chunk_size} --l1-size-gb {l1_gb}"
    l1_gb = 1                   # a variable that does not vary

Everything that cannot work is said here, before anything is started.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchserver.errors import UsageError, one_line
from benchserver.options.kinds import Action, Choice, Flag, Number, Port, Text, Texts, Whole
from benchserver.options.option import Option
from benchserver.sweep.cells import Cell, Value, alike, text_of
from benchserver.sweep.template import HTTP_PORT, PORTS, filled, variables_in, words_of

PRODUCT, ONE_AT_A_TIME = "product", "one-at-a-time"
MOST_REPETITIONS = 100
_MOST_VALUES = 1000
_MOST_CELLS = 10_000

_PARTS = ("mode", "repetitions", "load", "vary", "base", "server")
_SERVER_KEYS = ("command", "url", "rpc-url")

NO_HTTP = "no-http"
"""The option of a load whose server has no HTTP API."""

OURS = (
    *("json", "junit", "html", "summary", "hdr", "quiet", "config", "version"),
    *("embedded", "rpc-url", "url"),
)
"""Options of a load that the sweep gives itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the command line says in place of the file; "" and None: nothing."""

    command: str = ""
    repetitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A matrix that was read: its cells, and how often each is run."""

    cells: tuple[Cell, ...]
    repetitions: int


def parse_matrix(
    document: Mapping[str, Any], options: Mapping[str, Option], overrides: Overrides
) -> Matrix:
    """Return the cells of a file, given the options of a load; UsageError, in one line."""
    for name in document:
        if name not in _PARTS:
            raise UsageError(f"{_shown(name)}: not a part of a matrix; known: {', '.join(_PARTS)}")
    tables = {name: _table(document, name) for name in _PARTS[2:]}
    server = _server(tables["server"], overrides)
    for name, value in tables["load"].items():
        _check_option(f"[load] {_shown(name)}", options, name, value)
    vary = {name: _values(name, found) for name, found in tables["vary"].items()}
    for name, values in vary.items():
        if name in tables["load"] or name in server.fixed:
            raise UsageError(f"[vary] {_shown(name)}: it has a fixed value as well")
        for value in values:
            _check_varied(f"[vary] {_shown(name)}", options, server, name, value)
    mode = document.get("mode", PRODUCT)
    base = _base(mode, tables["base"], vary)
    for name, value in base.items():
        _check_varied(f"[base] {_shown(name)}", options, server, name, value)
    _check_variables(server, vary)
    combinations = _product(vary) if mode == PRODUCT else _one_at_a_time(vary, base)
    cells = tuple(_cell(tables["load"], server, options, varied) for varied in combinations)
    if same := alike(cells):
        raise UsageError(f"[vary]: two cells are the same: {same[0].label} and {same[1].label}")
    return Matrix(cells=cells, repetitions=_repetitions(document, overrides))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """`words` (): it runs already.  `given`: what the load must be told of it."""

    words: tuple[str, ...]
    given: Mapping[str, Value]
    fixed: Mapping[str, Value]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for name in variables_in(self.words) if name not in PORTS)


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{name} is not a table: write [{name}]")
    return found


def _server(table: Mapping[str, Any], overrides: Overrides) -> _Server:
    named = {name: table[name] for name in _SERVER_KEYS if name in table}
    for name, value in named.items():
        if not isinstance(value, str):
            raise UsageError(f"[server] {name}: expected text in quotes")
    command = overrides.command or named.get("command", "")
    urls = {name: value for name, value in named.items() if name != "command"}
    fixed = {name: value for name, value in table.items() if name not in _SERVER_KEYS}
    for name, value in fixed.items():
        if not isinstance(value, bool | int | float | str):
            raise UsageError(f"[server] {_shown(name)}: expected one value")
    if command and urls:
        raise UsageError("a server's command and its urls exclude each other: who starts it?")
    if command:
        words = words_of(command)
        return _Server(words=words, given=_http(HTTP_PORT in variables_in(words)), fixed=fixed)
    if "rpc-url" not in urls:
        raise UsageError("no server: give --server-cmd, or command or rpc-url in [server]")
    return _Server(words=(), given={**urls, **_http("url" in urls)}, fixed=fixed)


def _http(is_known: bool) -> dict[str, Value]:
    return {} if is_known else {NO_HTTP: True}


def _check_variables(server: _Server, vary: Mapping[str, Any]) -> None:
    for name in server.variables:
        if name not in vary and name not in server.fixed:
            raise UsageError(
                f"the server's command has {{{name}}}, and neither [vary] nor [server] has a value "
                f"for it; {{rpc_port}} and {{http_port}} come by themselves"
            )
    for name in server.fixed:
        if name not in server.variables:
            raise UsageError(
                f"[server] {_shown(name)}: not a variable of its command, which has "
                f"{', '.join(server.variables) or 'none'}"
            )


def _values(name: str, found: Any) -> Sequence[Value]:
    if not isinstance(found, list) or not found:
        raise UsageError(f"[vary] {_shown(name)}: expected a list of values, such as [1, 4]")
    if len(found) > _MOST_VALUES:
        raise UsageError(f"[vary] {_shown(name)}: {len(found)} values, at most {_MOST_VALUES}")
    return found


def _check_varied(
    place: str, options: Mapping[str, Option], server: _Server, name: str, value: Any
) -> None:
    if name in options or name not in server.variables:
        _check_option(place, options, name, value)
    elif not isinstance(value, bool | int | float | str):
        raise UsageError(f"{place}: {_shown(value)} is not one value")


def _check_option(place: str, options: Mapping[str, Option], name: str, value: Any) -> None:
    if name in OURS:
        raise UsageError(f"{place}: the sweep decides that itself, by [server] and --out")
    if name not in options:
        raise UsageError(
            f"{place}: neither an option of bench-server load nor a variable of the server's "
            "command; see bench-server load --help"
        )
    if options[name].secret:
        raise UsageError(f"{place}: secrets stand in no record; use its variable or its file")
    if problem := _problem(options[name], value):
        raise UsageError(f"{place}: {problem}")


def _problem(option: Option, value: Any) -> str:
    """Say why an option cannot have a value, or ""."""
    text, is_number = _shown(value), isinstance(value, int | float) and not isinstance(value, bool)
    match option.kind:
        case Whole() | Port():
            if not is_number or not isinstance(value, int):
                return f"{text} is not a whole number"
            return option.problem(value)
        case Number():
            return option.problem(value) if is_number else f"{text} is not a number"
        case Choice(words):
            return "" if value in words else f"{text} is not one of {', '.join(words)}"
        case Flag():
            return "" if isinstance(value, bool) else f"{text}: expected true or false"
        case Text():
            return "" if is_number or isinstance(value, str) else f"{text}: expected text"
        case Texts() | Action():
            return "a sweep cannot give it"


def _base(mode: Any, table: Mapping[str, Any], vary: Mapping[str, Any]) -> dict[str, Value]:
    if mode not in (PRODUCT, ONE_AT_A_TIME):
        raise UsageError(f"mode {_shown(mode)}: expected {PRODUCT!r} or {ONE_AT_A_TIME!r}")
    if mode == PRODUCT:
        if table:
            raise UsageError(f"[base] is for mode = {ONE_AT_A_TIME!r}: a product has no base")
        return {}
    for name in table:
        if name not in vary:
            raise UsageError(f"[base] {_shown(name)}: it does not vary; say it in [load]")
    return {name: table.get(name, values[0]) for name, values in vary.items()}


def _product(vary: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    count = 1
    for values in vary.values():
        count *= len(values)
    if count > _MOST_CELLS:
        raise UsageError(f"[vary]: {count} cells, at most {_MOST_CELLS}")
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def _one_at_a_time(
    vary: Mapping[str, Sequence[Value]], base: dict[str, Value]
) -> list[dict[str, Value]]:
    def cells() -> Iterator[dict[str, Value]]:
        yield dict(base)
        for name, values in vary.items():
            yield from ({**base, name: value} for value in values if value != base[name])

    return list(itertools.islice(cells(), _MOST_CELLS))


def _cell(
    load: Mapping[str, Value],
    server: _Server,
    options: Mapping[str, Option],
    varied: Mapping[str, Value],
) -> Cell:
    asked = {**load, **{name: value for name, value in varied.items() if name in options}}
    variables = {name: text_of(value) for name, value in {**server.fixed, **varied}.items()}
    words = filled(server.words, variables)
    return Cell(load={**server.given, **asked}, server=words, varied=varied)


def _repetitions(document: Mapping[str, Any], overrides: Overrides) -> int:
    found = document.get("repetitions", 1)
    if overrides.repetitions is not None:
        found = overrides.repetitions
    if type(found) is not int or not 1 <= found <= MOST_REPETITIONS:
        raise UsageError(f"repetitions {_shown(found)}: expected 1 to {MOST_REPETITIONS}")
    return found


def _shown(value: object) -> str:
    return one_line(ascii(value) if isinstance(value, str) else repr(value), 60)
