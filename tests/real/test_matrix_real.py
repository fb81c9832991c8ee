"""What every release must pass: the matrix of its transfer modes and shapes, and the probe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol.dialect import Dialect
from tests import acceptance
from tests.mitm.bench import Ended, assert_clean, assert_proven, run_bench
from tests.mitm.running import Urls
from tests.real.compatibility import check_cell
from tests.real.conftest import Environment
from tests.real.matrix import CELLS, HANDLE, ONE_GROUP, SEQUENCES, SHAPES, Cell, Shape, gap

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

# Several groups in engine_driven are wrong usage, whatever the release.
ASKED = [cell for cell in CELLS if cell.mode is HANDLE or cell.shape.groups == 1]
SINGLE, _, TP2, _, TWO_GROUPS, _ = SHAPES

NOWHERE = "http://127.0.0.1:1"
GROUPS = {
    "0.4.6": "0.4.6",
    "0.4.7": "0.4.7",
    "0.5.0": "0.5.0 to 0.5.2",
    "0.5.1": "0.5.0 to 0.5.2",
    "0.5.2": "0.5.0 to 0.5.2",
    "0.5.3": "0.5.3 to 0.5.4",
    "0.5.4": "0.5.3 to 0.5.4",
    "0.5.5": "0.5.5",
    "0.5.6": "0.5.6",
    "0.5.7rc2": "0.5.7",
}
"""What the probe can tell of each release."""


def refuse(server: Urls, cell: Cell, said: str, tmp_path: Path) -> None:
    """Ask for what the release cannot do: nothing is run, and one line says why."""
    before = acceptance.status_of(server)
    ended = run_bench(server, acceptance.options_of(cell.case, 1), tmp_path / "report.json")
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    assert said in ended.stdout, ended.explain()
    assert ended.report["sequences"]["attempted"] == 0, ended.explain()
    acceptance.assert_nothing_left(server, before)


@pytest.mark.parametrize("cell", ASKED, ids=lambda cell: cell.name)
def test_proves_every_byte_or_says_why_not(
    cell: Cell,
    environment: Environment,
    dialect: Dialect,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    why = gap(cell, dialect, has_pool=environment.release.has_pool)
    pooled = cell.mode.pool and why is None
    server: Urls = request.getfixturevalue("real_pooled" if pooled else "real")
    if why is None:
        check_cell(server, cell, dialect, tmp_path)
    else:
        assert why is not ONE_GROUP
        refuse(server, cell, why.said, tmp_path)


@pytest.mark.parametrize("shape", [TP2, TWO_GROUPS], ids=lambda shape: shape.name)
def test_retrieves_in_part(shape: Shape, dialect: Dialect, real: Urls, tmp_path: Path) -> None:
    if not dialect.maps_cpu:
        pytest.skip(f"{dialect.name} has no lmcache_driven on CPU, the mode that skips tokens")
    case = Cell(mode=HANDLE, shape=shape).case
    acceptance.check_parts(real, case, shape.ranks, tmp_path)


def test_two_benches_at_once(real: Urls, tmp_path: Path) -> None:
    acceptance.check_two_at_once(real, (SINGLE.spec,), SEQUENCES, tmp_path)


def test_the_probe_finds_it_and_does_no_harm(
    environment: Environment, dialect: Dialect, real: Urls, tmp_path: Path
) -> None:
    """Without HTTP it is found, keeps what it holds, and answers as before."""
    sequences, name = 3, environment.release.name
    options = [*acceptance.options_of((SINGLE.spec,), sequences), "--seed", "20251130"]
    warm = [*options, "--expect-warm"]

    def proven(which: str, *arguments: str) -> Ended:
        ended = run_bench(real, arguments, tmp_path / f"{which}.json")
        assert_proven(ended, sequences)
        return ended

    before = acceptance.status_of(real)
    told = proven("stored", *options)
    assert re.search(rf"^Server version = {re.escape(name)}\b", told.stdout, re.M), told.explain()
    assert told.report["server"]["release"] == dialect.name

    asked = proven("asked", *warm, "--no-http", "--url", NOWHERE)
    assert f"It answers as release {GROUPS[name]}\n" in asked.stdout, asked.explain()
    assert "Server version = unknown" in asked.stdout, asked.explain()

    proven("after", *warm)
    acceptance.assert_nothing_left(real, before)
