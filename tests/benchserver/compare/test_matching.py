"""Cells of both sides, and what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchserver.compare.matching import CELL, Matched, match
from benchserver.compare.reading import Run, Side
from tests.benchserver.compare.reports import report, run_of, with_values


def made(name: str, **changes: Any) -> Run:
    """Return a run whose report has other values; `__` stands for a dot."""
    paths = {key.replace("__", "."): value for key, value in changes.items()}
    return run_of(with_values(report(), paths), name)


def matched(a: list[Run], b: list[Run], *allowed: str, force: bool = False) -> Matched:
    """Return what is matched of these runs."""
    return match(Side("A", tuple(a)), Side("B", tuple(b)), allowed, force=force)


def keys(found: Matched) -> list[str]:
    """Return the keys of what differs and is not allowed."""
    return [difference.key for difference in found.differences if not difference.allowed]


def test_equal_runs_are_one_cell_and_seeds_and_ports_may_differ() -> None:
    a, b = made("a", config__seed=1), made("b", config__seed=2, config__rpc_url="tcp://h:1")
    found = matched([a], [b, made("b2", run__engine__seed=9)])
    assert not found.differences
    assert [(cell.label, len(cell.a), len(cell.b)) for cell in found.cells] == [("", 1, 2)]


def test_every_kind_of_difference_is_listed() -> None:
    b = made(
        "b",
        config__num_tokens=1024,
        server__transport="inline",
        run__server__cache="warm",
        environment__cpu_model="another",
        run__software__bench_server="0.2.0",
        replay="bench-server ping",
    )
    found = matched([made("a")], [b])
    assert set(keys(found)) == {
        *("config.num_tokens", "server.transport", "server.cache", "machine.cpu_model"),
        *("software.bench_server", "scenario"),
    }
    (tokens,) = [one for one in found.differences if one.key == "config.num_tokens"]
    assert tokens.text == "config.num_tokens: A has 512, B has 1024"
    assert not keys(matched([made("a")], [b], force=True))
    rest = matched([made("a")], [b], "config", "server", "machine.cpu_model", "scenario")
    assert keys(rest) == ["software.bench_server"]


def test_the_release_may_differ_and_its_options_come_with_it() -> None:
    setup = {"mp": {"port": 1, "chunk_size": 256, "new_option": 1}}
    b = made("b", server__version="0.5.7", run__server__configuration=setup)
    found = matched([made("a")], [b])
    assert not found.differences
    assert found.remarks == ("Options that one of the releases does not have: mp.new_option",)
    other = {"mp": {"chunk_size": 512}}
    found = matched(
        [made("a")], [made("b", server__version="0.5.7", run__server__configuration=other)]
    )
    assert keys(found) == ["server_config.mp.chunk_size"]
    same_release = made("b", run__server__configuration=setup)
    assert keys(matched([made("a")], [same_release])) == ["server_config.mp.new_option"]


def test_runs_of_one_side_that_differ_alike_on_the_other_do_not_matter() -> None:
    a = [made("a1"), made("a2", run__server__cache="warm")]
    b = [made("b1", run__server__cache="warm"), made("b2")]
    assert not matched(a, b).differences
    assert keys(matched(a, b[:1])) == ["server.cache"]


def test_a_part_that_no_report_has_is_a_difference() -> None:
    assert keys(matched([made("a", environment={})], [made("b", environment={})])) == ["machine"]


def test_cells_are_matched_by_the_work() -> None:
    a = [made(f"a{rate}", config__rate=rate) for rate in (10, 20)]
    b = [made(f"b{rate}", config__rate=rate) for rate in (20, 10)]
    found = matched(a, b)
    assert not found.differences
    assert [(cell.label, cell.a[0].name, cell.b[0].name) for cell in found.cells] == [
        ("rate=10", "a10", "b10"),
        ("rate=20", "a20", "b20"),
    ]


def test_a_cell_of_one_side_alone_is_refused_or_left_out() -> None:
    a = [made(f"a{rate}", config__rate=rate) for rate in (10, 20)]
    b = [made(f"b{rate}", config__rate=rate) for rate in (20, 30, 40)]
    found = matched(a, b)
    assert keys(found) == [CELL] * 3
    assert found.differences[0].text == "cell: A has 1 runs, B has none (cell rate=10)"
    forced = matched(a, b, force=True)
    assert not keys(forced)
    assert [cell.label for cell in forced.cells] == ["rate=20"]


def test_cells_of_a_sweep_are_told_by_what_varies() -> None:
    a = [replace(made(f"a{n}"), varied={"tier": n}) for n in ("fs", "none")]
    b = [replace(made(f"b{n}"), varied={"tier": n}) for n in ("fs", "none")]
    assert [cell.label for cell in matched(a, b).cells] == ["tier=fs", "tier=none"]
