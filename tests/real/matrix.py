"""What every release is put through: transfer modes by shape classes, and what a release lacks.

The one definition behind `test_matrix_real.py` and `scripts/compat_table`.  Data, and one pure
question: what a server cannot do is read from its dialect and its row in `releases`, never known
here by version.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.dialect import Dialect
from tests.real.releases import ENGINE_DRIVEN, LMCACHE_DRIVEN

SEQUENCES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way of the KV bytes; `pool`: it needs a server with a shared-memory pool."""

    transfer: str
    transport: str
    pool: bool = False


HANDLE = Mode(transfer=LMCACHE_DRIVEN, transport="handle")
INLINE = Mode(transfer=ENGINE_DRIVEN, transport="inline")
SHM = Mode(transfer=ENGINE_DRIVEN, transport="shm", pool=True)
MODES = (HANDLE, INLINE, SHM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One class of KV shapes: a spec of a few MiB, on so many ranks.

    Heads and block size differ in all of them, so that a layout read the wrong way shows.
    """

    name: str
    spec: str
    ranks: int = 1
    groups: int = 1
    mixed: bool = False
    """MLA layers beside classical ones."""


SHAPES = (
    Shape(name="single group", spec="(2,128,16,4,64):float16:3"),
    Shape(name="uint8", spec="(2,128,16,4,64):uint8:3"),
    Shape(name="TP 2", spec="(2,128,16,4,64):float16:3", ranks=2),
    Shape(name="MLA, TP 2", spec="(1,128,16,1,576):bfloat16:3", ranks=2),
    Shape(
        name="two groups",
        spec="(2,128,16,2,32):bfloat16:2;(2,128,16,4,64):float16:3",
        groups=2,
    ),
    Shape(
        name="MLA + classical",
        spec="(1,128,16,1,128):bfloat16:2;(2,128,16,4,64):float16:3",
        groups=2,
        mixed=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of the matrix."""

    mode: Mode
    shape: Shape

    @property
    def name(self) -> str:
        """Return a name without blanks."""
        return f"{self.mode.transport}-{self.shape.name.replace(', ', '_').replace(' ', '_')}"

    @property
    def case(self) -> tuple[str, ...]:
        """Return the case that `tests.acceptance` runs."""
        return (
            self.shape.spec,
            *("--tp-size", str(self.shape.ranks)),
            *("--transfer-mode", self.mode.transfer),
            *("--require-transport", self.mode.transport),
        )


CELLS = tuple(Cell(mode=mode, shape=shape) for mode in MODES for shape in SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Why a cell is not run.

    mark: stands for it in the table.
    said: words of bench-server when it is asked for the cell all the same.
    """

    mark: str
    meaning: str
    said: str


ONE_GROUP = Gap(
    mark="a",
    meaning="engine_driven carries one KV layer group, in every release; bench-server refuses more",
    said="engine_driven carries one KV layer group",
)
NOT_MAPPED = Gap(
    mark="b",
    meaning="the server cannot map KV tensors of a CPU (`maps_cpu` of its dialect)",
    said="cannot map KV tensors of a CPU",
)
NO_ENGINE = Gap(
    mark="c",
    meaning="the server has no engine-driven operations (`engine_driven` of its dialect)",
    said="has no such mode",
)
NO_POOL = Gap(
    mark="d",
    meaning="the server has no shared-memory pool (`has_pool` in tests/real/releases.py)",
    said="--require-transport shm, but",
)
NOT_MIXED = Gap(
    mark="e",
    meaning="the server cannot register MLA layers beside others (`mixed_groups` of its dialect)",
    said="cannot register MLA layers beside others",
)
GAPS = (ONE_GROUP, NOT_MAPPED, NO_ENGINE, NO_POOL, NOT_MIXED)


def gap(cell: Cell, dialect: Dialect, *, has_pool: bool) -> Gap | None:
    """Return why a server that speaks `dialect` cannot do this, or None if it must.

    In the order in which bench-server finds out.
    """
    mode, shape = cell.mode, cell.shape
    if mode.transfer == ENGINE_DRIVEN and shape.groups > 1:
        return ONE_GROUP
    if shape.mixed and not dialect.mixed_groups:
        return NOT_MIXED
    if mode.transfer == LMCACHE_DRIVEN:
        return None if dialect.maps_cpu else NOT_MAPPED
    if not dialect.engine_driven:
        return NO_ENGINE
    return NO_POOL if mode.pool and not has_pool else None
