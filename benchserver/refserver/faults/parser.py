"""A switch's text, `name[:args][@when]`, to a fault and its settings; a mistake is one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchserver.errors import UsageError, one_line
from benchserver.refserver.faults.fault import Fault
from benchserver.refserver.faults.moments import EVERY_CALL, Moment, parse_moment
from benchserver.refserver.faults.settings import PARAMS, Settings
from benchserver.refserver.faults.table import FAULTS

MAX_TEXT = 200
MAX_SWITCHES = 32
"""Far more faults at once than anybody can tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One fault, switched on."""

    text: str
    fault: Fault
    settings: Settings
    moment: Moment


def parse_switches(texts: Iterable[str]) -> tuple[Switch, ...]:
    """Read several switches, or raise UsageError."""
    switches = tuple(parse_switch(text) for text in texts)
    if len(switches) > MAX_SWITCHES:
        raise UsageError(f"{len(switches)} faults at once, expected at most {MAX_SWITCHES}")
    return switches


def parse_switch(text: str) -> Switch:
    """Read one switch, or raise UsageError."""
    try:
        return _parse(text)
    except ValueError as error:
        raise UsageError(f"fault {one_line(ascii(text), 80)}: {error}") from error


def _parse(text: str) -> Switch:
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text)} characters, expected at most {MAX_TEXT}")
    head, at, moment = text.partition("@")
    name, colon, args = head.partition(":")
    fault = FAULTS.get(name)
    if fault is None:
        raise ValueError(f"no such fault; known: {', '.join(FAULTS)}")
    return Switch(
        text=text,
        fault=fault,
        settings=_settings(fault, args) if colon else fault.defaults,
        moment=parse_moment(moment) if at else EVERY_CALL,
    )


def _settings(fault: Fault, args: str) -> Settings:
    if not fault.params:
        raise ValueError("it takes no arguments")
    values: dict[str, str] = {}
    unnamed = list(fault.params)
    for part in args.split(","):
        name, equals, value = part.partition("=")
        if equals:
            unnamed.clear()  # values without a name come first
        elif unnamed:
            name, value = unnamed.pop(0), part
        else:
            raise ValueError(f"{part!a} needs a name, one of {', '.join(fault.params)}")
        if name not in fault.params:
            raise ValueError(f"no parameter {name!a}, expected {', '.join(fault.params)}")
        if name in values:
            raise ValueError(f"{name} is given twice")
        values[name] = value
    changes = {PARAMS[name].field: _read(name, value) for name, value in values.items()}
    return replace(fault.defaults, **changes)


def _read(name: str, text: str) -> Any:
    try:
        return PARAMS[name].read(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{name} {text!a}, expected {PARAMS[name].expected}") from error
