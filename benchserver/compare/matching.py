"""Which runs of both sides are of one cell, and in what they differ that must be equal.  Pure.

A cell is one kind of work: runs whose facts of the work are equal, and that vary alike in a sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from benchserver.compare.facts import NOT_SAID, covers, decides_work
from benchserver.compare.reading import Run, Side

CELL = "cell"
"""The key under which a difference says that a cell is on one side alone."""

_SETUP = "server_config."
_MAX_VALUES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact that both sides should have in common; `allowed`: the user knows of it."""

    key: str
    a: str
    b: str
    cell: str
    allowed: bool

    @property
    def text(self) -> str:
        """Return it as a line."""
        where = f" (cell {self.cell})" if self.cell else ""
        return f"{self.key}: A has {self.a}, B has {self.b}{where}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of both sides that are compared with each other."""

    label: str
    a: tuple[Run, ...]
    b: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Matched:
    """The cells of both sides, what differs, and what came with another release of the server."""

    cells: tuple[Cell, ...]
    differences: tuple[Difference, ...]
    remarks: tuple[str, ...]


def match(a: Side, b: Side, allowed: Collection[str], *, force: bool) -> Matched:
    """Return the cells that both sides have, and all differences."""
    groups_a, groups_b = _grouped(a, allowed), _grouped(b, allowed)
    pairs = [(groups_a.pop(key), groups_b.pop(key)) for key in list(groups_a) if key in groups_b]
    if len(groups_a) == len(groups_b) == 1:
        pairs.append((*groups_a.values(), *groups_b.values()))  # type: ignore[arg-type]  # one each
        groups_a, groups_b = {}, {}
    everything = [runs for pair in pairs for runs in pair]
    everything += [*groups_a.values(), *groups_b.values()]
    label = _labels(everything)
    cells = tuple(Cell(label(pair[0][0]), *pair) for pair in pairs)
    differences = [found for cell in cells for found in _differences(cell, allowed, force)]
    for name, groups in (("A", groups_a), ("B", groups_b)):
        for runs in groups.values():
            there, other = f"{len(runs)} runs", "none"
            a_text, b_text = (there, other) if name == "A" else (other, there)
            differences.append(Difference(
                key=CELL, a=a_text, b=b_text, cell=label(runs[0]), allowed=force
            ))  # fmt: skip
    return Matched(cells, tuple(differences), tuple(_remarks(cells)))


def _grouped(side: Side, allowed: Collection[str]) -> dict[object, tuple[Run, ...]]:
    groups = dict[object, tuple[Run, ...]]()
    for run in side.runs:
        work = frozenset(
            (key, value)
            for key, value in run.facts.items()
            if decides_work(key) and not any(covers(name, key) for name in allowed)
        )
        key = (frozenset(run.varied.items()), work)
        groups[key] = (*groups.get(key, ()), run)
    return groups


def _labels(groups: Sequence[Sequence[Run]]) -> Labelling:
    """Return what calls a run's cell: that in which the cells differ; "" for a single one."""
    if len({id(runs) for runs in groups}) <= 2:
        return Labelling(())
    first = [runs[0] for runs in groups]
    keys = sorted({key for run in first for key in run.facts if decides_work(key)})
    return Labelling(tuple(key for key in keys if len({run.facts.get(key) for run in first}) > 1))


@dataclass(frozen=True, slots=True)
class Labelling:
    """What calls the cell of a run, by these facts."""

    keys: tuple[str, ...]

    def __call__(self, run: Run) -> str:
        """Return the label."""
        told = run.varied or {
            key.removeprefix("config."): run.facts.get(key, NOT_SAID) for key in self.keys
        }
        return " ".join(f"{key}={value}" for key, value in told.items())


def _differences(cell: Cell, allowed: Collection[str], force: bool) -> Iterable[Difference]:
    releases_differ = {run.server for run in cell.a} != {run.server for run in cell.b}
    keys = dict.fromkeys(key for run in (*cell.a, *cell.b) for key in run.facts)
    for key in keys:
        a, b = _values(cell.a, key), _values(cell.b, key)
        if a == b and NOT_SAID not in a:
            continue
        if releases_differ and key.startswith(_SETUP) and {NOT_SAID} in (a, b):
            continue  # an option that one release does not have: it comes with the release
        known = force or any(covers(name, key) for name in allowed)
        yield Difference(key=key, a=_said(a), b=_said(b), cell=cell.label, allowed=known)


def _values(runs: Iterable[Run], key: str) -> set[str]:
    return {run.facts.get(key, NOT_SAID) for run in runs}


def _said(values: set[str]) -> str:
    shown = sorted(values)[:_MAX_VALUES]
    more = len(values) - len(shown)
    return " and ".join(shown) + (f" and {more} more" if more else "")


def _remarks(cells: Iterable[Cell]) -> Iterable[str]:
    """Yield what is not refused, and should be known."""
    found = dict.fromkeys(
        key.removeprefix(_SETUP)
        for cell in cells
        if {run.server for run in cell.a} != {run.server for run in cell.b}
        for key in {key for run in (*cell.a, *cell.b) for key in run.facts}
        if key.startswith(_SETUP)
        if (NOT_SAID in _values(cell.a, key)) != (NOT_SAID in _values(cell.b, key))
    )
    if found:
        yield f"Options that one of the releases does not have: {', '.join(sorted(found))}"
