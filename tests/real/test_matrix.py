"""The matrix without a server: what it holds, and what it asks of each release."""

from __future__ import annotations

import pytest

from protocol.dialects import dialect_of
from shapespec.layout import pool_bytes
from shapespec.parser import parse_shape_spec
from tests.real.matrix import CELLS, GAPS, MODES, SHAPES, Cell, Gap, Shape, gap
from tests.real.releases import RELEASES, release_named

MOST_BYTES = 16 << 20


def gaps_of(release: str, *, has_pool: bool) -> list[str]:
    """Return a line for each mode: a mark or a dot for each shape."""
    found = {c: gap(c, dialect_of(release), has_pool=has_pool) for c in CELLS}
    return [
        "".join(why.mark if (why := found[Cell(mode=mode, shape=s)]) else "." for s in SHAPES)
        for mode in MODES
    ]


@pytest.mark.parametrize(
    ("release", "has_pool", "handle", "inline", "shm"),
    [
        ("0.5.7rc2", True, "......", "....aa", "....aa"),
        ("0.5.6", True, "......", "....aa", "....aa"),
        ("0.5.6", False, "......", "....aa", "ddddaa"),
        ("0.5.1", True, "......", "....aa", "....aa"),
        ("0.5.0", True, ".....e", "....aa", "....aa"),
        ("0.4.7", True, ".....e", "....aa", "....aa"),
        ("0.4.6", False, "bbbbbe", "....aa", "ddddaa"),
        ("0.4.5", False, "bbbbbe", "ccccaa", "ccccaa"),
    ],
)
def test_what_a_release_lacks(
    release: str, has_pool: bool, handle: str, inline: str, shm: str
) -> None:
    assert gaps_of(release, has_pool=has_pool) == [handle, inline, shm]


def test_every_release_that_starts_here_must_pass_something() -> None:
    for release in RELEASES:
        asked = gaps_of(release.name, has_pool=release_named(release.name).has_pool)
        assert "." in "".join(asked), release.name


def test_names_and_marks_are_unique() -> None:
    assert len(CELLS) == len(MODES) * len(SHAPES) == len({cell.name for cell in CELLS})
    assert len(GAPS) == len({one.mark for one in GAPS}) == len({one.said for one in GAPS})
    assert all(isinstance(one, Gap) for one in GAPS)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_is_what_it_says(shape: Shape) -> None:
    spec = parse_shape_spec(shape.spec)
    kinds = {group.is_mla for group in spec.groups}
    assert len(spec.groups) == shape.groups
    assert (len(kinds) > 1) == shape.mixed
    assert ("MLA" in shape.name) == (True in kinds)
    assert ("uint8" in shape.name) == (spec.groups[0].dtype.name == "uint8")
    assert pool_bytes(spec) <= MOST_BYTES
    for group in spec.groups:  # else a tensor read with the wrong layout looks right
        assert group.num_heads != group.block_size


def test_a_cell_asks_for_its_mode_and_no_other() -> None:
    cell = CELLS[2]
    assert cell.name == "handle-TP_2"
    spec, *options = cell.case
    assert spec == cell.shape.spec
    assert options == [
        *("--tp-size", "2", "--transfer-mode", "lmcache_driven"),
        *("--require-transport", "handle"),
    ]
