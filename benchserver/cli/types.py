"""Strict parameter types: plain ASCII numbers, nothing that Python alone would take; and text."""

from __future__ import annotations

import math
import os
import re
from typing import Any

import click

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,25})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
"""With room for all digits of a float, so that a replay line can be read again."""


def _shown(value: float) -> str:
    """Return every digit that a number has: 1.0000001 is not 1."""
    return repr(value).removesuffix(".0")


class StrictInt(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A decimal integer within bounds: no sign but minus, no underscore, no foreign digits."""

    name = "integer"

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer, or fail with the value and the bounds."""
        if isinstance(value, bool) or not isinstance(value, int):
            if not isinstance(value, str) or not _INTEGER.fullmatch(value.strip(" ")):
                self.fail(f"{ascii(value)[:60]} is not a decimal integer", param, ctx)
            value = int(value)
        if not self._low <= value <= self._high:
            self.fail(f"{value} is out of range, expected {self._low} to {self._high}", param, ctx)
        return int(value)


class StrictFloat(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A finite decimal number within bounds."""

    name = "number"

    def __init__(self, low: float, high: float) -> None:
        self._low = low
        self._high = high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail with the value and the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip(" ")):
                self.fail(f"{ascii(value)[:60]} is not a decimal number", param, ctx)
            value = float(value)
        if not math.isfinite(value) or not self._low <= value <= self._high:
            self.fail(
                f"{_shown(value)} is out of range, expected {_shown(self._low)} to "
                f"{_shown(self._high)}",
                param,
                ctx,
            )
        return float(value)


class Text(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Text in any script: Python does not decode it where the locale has ASCII alone."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text that the bytes of an argument or a variable are in UTF-8."""
        if not isinstance(value, str):
            self.fail(f"{ascii(value)[:60]} is not text", param, ctx)
        try:
            return os.fsencode(value).decode() if not _is_whole(value) else value
        except ValueError:
            return value  # not UTF-8: the code that looks at the value says so


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
