"""What a user asks of a comparison, over what was read: all that can be refused, refused.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from benchserver.compare.comparing import compare
from benchserver.compare.facts import parts_of
from benchserver.compare.figures import known_names, near
from benchserver.compare.gates import Gate, judge, parse_gate
from benchserver.compare.matching import CELL, Difference, match
from benchserver.compare.options import LEAVE_OUT, REFUSE
from benchserver.compare.reading import Run, Side
from benchserver.compare.verdict import Told
from benchserver.errors import UsageError, one_line

SEPARATOR = "\0--"
"""What stands for `--` among paths: nothing that a shell could give."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why both sides are not compared, in full, and the error in a line."""

    lines: tuple[str, ...]
    error: str


def split(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the paths of each side; UsageError if it is not said which is which."""
    if SEPARATOR in paths:
        at = paths.index(SEPARATOR)
        a, b = paths[:at], paths[at + 1 :]
        if a and b and SEPARATOR not in b:
            return a, b
    elif len(paths) == 2:
        return paths[:1], paths[1:]
    raise UsageError(
        "a comparison needs two sides: bench-server compare A B, each a report or a folder of "
        "them, or bench-server compare A... -- B..."
    )


def names_in(sides: Iterable[Side]) -> set[str]:
    """Return the names of all figures that there are."""
    runs = [run for side in sides for run in side.runs]
    found = {name for run in runs for name in (*run.figures.values, *run.figures.left_out)}
    return found | set(known_names())


def answer(a: Side, b: Side, options: Mapping[str, Any]) -> Told | Refused:
    """Return the comparison, or why there is none; UsageError for what is asked wrongly."""
    names = names_in((a, b))
    gates = [parse_gate(text, names) for text in options["fail_if"]]
    wanted = _patterns(options["figure"], names, gates)
    _check_allowed(options["allow"], (a, b))
    kept, remarks = _evidence((a, b), options["not_valid"])
    if isinstance(kept, Refused):
        return kept
    matched = match(*kept, options["allow"], force=options["force"])
    refused = [found for found in matched.differences if not found.allowed]
    if refused:
        return _refused(refused)
    if not matched.cells:
        raise UsageError("the sides have no cell in common: there is nothing to compare")
    comparison = compare(matched.cells, wanted, options["seed"])
    remarks += [f"differs, as you allow: {found.text}" for found in matched.differences]
    return Told(
        sides=kept,
        remarks=(*remarks, *matched.remarks),
        allowed=matched.differences,
        comparison=comparison,
        gates=tuple(judge(gates, comparison.rows, comparison.left_out)),
    )


def _patterns(asked: Sequence[str], names: set[str], gates: Sequence[Gate]) -> list[str]:
    """Return the patterns of what is looked at; gates are always looked at."""
    for pattern in asked:
        if not any(fnmatchcase(name, pattern) for name in names):
            meant = near(pattern, names)
            hint = f"; near: {', '.join(meant)}" if meant else "; docs/compare.md lists all"
            raise UsageError(f"--figure {one_line(pattern, 60)}: no figure is called so{hint}")
    return [*asked, *(gate.figure for gate in gates)] if asked else []


def _check_allowed(allowed: Sequence[str], sides: Iterable[Side]) -> None:
    keys = parts_of(key for side in sides for run in side.runs for key in run.facts)
    for name in allowed:
        if name not in keys:
            meant = near(name, keys)
            hint = f"; near: {', '.join(meant)}" if meant else ""
            raise UsageError(f"--allow {one_line(name, 60)}: no report has that key{hint}")


def _evidence(sides: tuple[Side, Side], what: str) -> tuple[tuple[Side, Side] | Refused, list[str]]:
    """Return both sides without the runs that are no evidence, as far as a user wants that."""
    bad = [run for side in sides for run in side.runs if run.troubles]
    texts = [f"{run.name}: {'; '.join(run.troubles)}" for run in bad]
    if bad and what == REFUSE:
        error = (
            f"{len(bad)} of the runs are no evidence (listed above); --not-valid leave-out "
            "compares the others, --not-valid use takes them all"
        )
        return Refused(tuple(texts), error), []
    kept = []
    for side in sides:
        runs = tuple(run for run in side.runs if _is_kept(run, what))
        if not runs:
            raise UsageError(f"side {side.name} has no run left that is evidence: {texts[0]}")
        kept.append(Side(side.name, runs))
    word = "left out" if what == LEAVE_OUT else "no evidence, and used as you ask"
    return (kept[0], kept[1]), [f"{word}: {text}" for text in texts]


def _is_kept(run: Run, what: str) -> bool:
    """A run without a report can never be used."""
    return not run.troubles or (what != LEAVE_OUT and bool(run.facts))


def _refused(found: Sequence[Difference]) -> Refused:
    return Refused(tuple(_listed(found)), (
        f"the sides differ in what must be equal ({len(found)} listed above): --allow KEY for each "
        "that you know of, or --force"
    ))  # fmt: skip


def _listed(found: Sequence[Difference]) -> Iterator[str]:
    for difference in found:
        missing = difference.key == CELL
        yield f"{difference.text}{'; --force leaves it out' if missing else ''}"
