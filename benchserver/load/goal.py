"""A goal of a single request: how long it, or one kind of its calls, may take.  Pure.

response<500ms and retrieve<50ms
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchserver.errors import UsageError, one_line

PARTS = ("response", "service", "lookup", "retrieve", "store")
"""What a goal may be about: the request as a whole, and its calls."""

_NS_OF = {"us": 1e3, "ms": 1e6, "s": 1e9}
_TERM = re.compile(r"\s*([a-z]+)\s*<=?\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(us|ms|s)\s*", re.ASCII)
_MAX_TEXT = 80


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a request, and the longest that it may take."""

    part: str
    bound_ns: int


def parse_goal(text: str) -> tuple[Term, ...]:
    """Return all terms, each of which must hold; UsageError for anything else."""
    return tuple(_term(term, text) for term in re.split(r"\band\b", text, flags=re.ASCII))


def keeps(terms: tuple[Term, ...], took_ns: Mapping[str, int]) -> bool:
    """Tell whether a request keeps every term; a part that it did not need took no time."""
    return all(took_ns.get(term.part, 0) <= term.bound_ns for term in terms)


def _term(term: str, text: str) -> Term:
    found = _TERM.fullmatch(term)
    part = "" if found is None else found.group(1)
    if found is None or part not in PARTS:
        raise UsageError(
            f"--goal {one_line(text, _MAX_TEXT)}: expected terms such as 'response<500ms and "
            f"retrieve<50ms'; a term is about {', '.join(PARTS)}, in us, ms or s"
        )
    bound_ns = int(float(found.group(2)) * _NS_OF[found.group(3)])
    if not bound_ns:
        raise UsageError(f"--goal {one_line(text, _MAX_TEXT)}: nothing takes no time")
    return Term(part, bound_ns)
