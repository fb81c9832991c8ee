"""Cells of a sweep and the order of their runs: pure.

A cell is what one load is asked, and the server that it is asked of.  Its key is a hash of both, so
that a record is found again by what decides it, and by nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchserver.options.kinds import shown

RATE = "rate"
"""The option of a load that a search decides."""

EMPTY = '""'
"""How an empty text is shown."""

_KEY_CHARS = 16
_SEED_BYTES = 4

Value = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination.

    `load`: options by their file keys.  `varied`: what tells this cell from the others.  `server`:
    the words of the command that starts its server, with the ports as variables; (): it runs
    already, at the addresses that `load` has.
    """

    load: Mapping[str, Value]
    server: tuple[str, ...]
    varied: Mapping[str, Value]

    @property
    def key(self) -> str:
        """Return the hash of all that decides it."""
        return digest({"load": dict(self.load), "server": list(self.server)})[:_KEY_CHARS]

    @property
    def label(self) -> str:
        """Return what lines call it."""
        named = (f"{name}={text_of(value) or EMPTY}" for name, value in self.varied.items())
        return " ".join(named) or "all"

    def at_rate(self, rate: float) -> Cell:
        """Return this cell with an open loop of this rate."""
        asked = {RATE: shown(float(rate))}
        return replace(self, load={**self.load, **asked}, varied={**self.varied, **asked})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One repetition of a cell."""

    cell: Cell
    repetition: int

    @property
    def name(self) -> str:
        """Return the name of its record."""
        return f"{self.cell.key}-{self.repetition}"

    def seed(self, sweep_seed: int) -> int:
        """Return the seed of its load: no two runs ask for the same tokens."""
        drawn = hashlib.sha256(f"load/{sweep_seed}/{self.name}".encode()).digest()
        return int.from_bytes(drawn[:_SEED_BYTES], "big")


def text_of(value: Value) -> str:
    """Return a value as a command line has it."""
    return str(value).lower() if isinstance(value, bool) else shown(value)


def digest(document: object) -> str:
    """Return a hash of a document of JSON, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def runs_of(cells: Sequence[Cell], repetitions: int, seed: int) -> list[Run]:
    """Return all runs, shuffled by the seed.

    What drifts while a sweep goes on must not look like a difference between its cells.
    """
    runs = (Run(cell=cell, repetition=n) for n in range(1, repetitions + 1) for cell in cells)
    return sorted(runs, key=lambda run: _place(run, seed))


def _place(run: Run, seed: int) -> bytes:
    return hashlib.sha256(f"order/{seed}/{run.name}".encode()).digest()


def alike(cells: Iterable[Cell]) -> tuple[Cell, Cell] | None:
    """Return two cells that are the same, or None."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        if cell.key in seen:
            return seen[cell.key], cell
        seen[cell.key] = cell
    return None
