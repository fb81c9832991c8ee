"""The words of a workload as users write them: `name`, `name:VALUE` or `name:key=value,...`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchserver.errors import UsageError, one_line

_SHOWN = 80
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A workload's values by key, each as it was written; `form` says what was expected."""

    text: str
    form: str
    values: Mapping[str, str]

    def problem(self, what: str) -> UsageError:
        """Return the error that says what is wrong with these words."""
        return UsageError(f"--workload {one_line(self.text, _SHOWN)}: {what}")

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        """Return a number from `low` to `high`; UsageError if it is none, or not there at all."""
        text = self._text(key, default)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise self._out_of_range(key, text, f"a number from {low:g} to {high:g}")
        return value

    def whole(self, key: str, *, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number from `low` to `high`; UsageError if it is none, or not there."""
        text = self._text(key, default)
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise self._out_of_range(key, text, f"a whole number from {low} to {high}")
        return int(text)

    def _text(self, key: str, default: float | None) -> str:
        if key in self.values:
            return self.values[key]
        if default is None:
            raise self.problem(f"expected {self.form}")
        return repr(default)

    def _out_of_range(self, key: str, text: str, expected: str) -> UsageError:
        return self.problem(f"{key} is {one_line(text, _SHOWN) or 'empty'}, expected {expected}")


def read_words(text: str, *, form: str, keys: tuple[str, ...], bare: str = "") -> Words:
    """Return the values of a workload's text; that of the key `bare` may stand without it.

    Raises UsageError for an unknown key, one given twice, and a value without a key.
    """
    values: dict[str, str] = {}
    words = Words(text=text, form=form, values=values)
    _, colon, rest = text.partition(":")
    for at, item in enumerate(rest.split(",") if colon else ()):
        key, equals, value = item.partition("=")
        if not equals:
            key, value = (bare, item) if at == 0 else ("", item)
        if key not in keys:
            raise words.problem(
                f"{one_line(item, _SHOWN) or 'nothing'} is not known, expected {form}"
            )
        if key in values:
            raise words.problem(f"{key} is given twice")
        values[key] = value.strip()
    return words
