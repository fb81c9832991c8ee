"""What is asked, and everything that is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchserver.compare.question import SEPARATOR, Refused, answer, split
from benchserver.compare.reading import Side
from benchserver.compare.verdict import Told
from benchserver.errors import UsageError
from tests.benchserver.compare.reports import report, run, run_of, with_values

ASKED: dict[str, Any] = {
    "fail_if": (),
    "figure": (),
    "allow": (),
    "force": False,
    "not_valid": "refuse",
    "seed": 0,
}


def sides(**b_changes: Any) -> tuple[Side, Side]:
    """Return two sides of two runs each."""
    b = [run_of(with_values(report(), b_changes), f"b{n}") for n in (1, 2)]
    return Side("A", (run("a1"), run("a2"))), Side("B", tuple(b))


def asked(a: Side, b: Side, **options: Any) -> Told | Refused:
    """Return the answer to a question with these options."""
    return answer(a, b, {**ASKED, **options})


@pytest.mark.parametrize(
    ("paths", "a", "b"),
    [
        (["x", "y"], ["x"], ["y"]),
        (["x", SEPARATOR, "y"], ["x"], ["y"]),
        (["x", "y", SEPARATOR, "z"], ["x", "y"], ["z"]),
    ],
)
def test_two_sides(paths: list[str], a: list[str], b: list[str]) -> None:
    assert split(paths) == (a, b)


@pytest.mark.parametrize(
    "paths",
    [[], ["x"], ["x", "y", "z"], [SEPARATOR, "x"], ["x", SEPARATOR],
     ["x", SEPARATOR, "y", SEPARATOR, "z"]],
)  # fmt: skip
def test_what_is_not_two_sides(paths: list[str]) -> None:
    with pytest.raises(UsageError, match="needs two sides"):
        split(paths)


def test_an_answer() -> None:
    told = asked(*sides(), fail_if=("retrieve.p99 > +10%",))
    assert isinstance(told, Told)
    assert told.exit_code == 0
    assert told.gates[0].outcome.value == "held"


def test_what_differs_is_refused_until_it_is_allowed() -> None:
    differing = sides(**{"config.num_tokens": 9, "environment.kernel": "7"})
    refused = asked(*differing)
    assert isinstance(refused, Refused)
    assert refused.lines == (
        "config.num_tokens: A has 512, B has 9",
        "machine.kernel: A has 6.1, B has 7",
    )
    assert "the sides differ in what must be equal (2 listed above)" in refused.error
    told = asked(*differing, allow=("machine", "config.num_tokens"))
    assert isinstance(told, Told)
    assert told.remarks[0] == "differs, as you allow: config.num_tokens: A has 512, B has 9"
    assert isinstance(asked(*differing, force=True), Told)


def test_runs_that_are_no_evidence() -> None:
    a, b = sides()
    bad = replace(b.runs[0], troubles=("it was interrupted",))
    b = Side("B", (bad, b.runs[1]))
    refused = asked(a, b)
    assert isinstance(refused, Refused)
    assert refused.lines == ("b1: it was interrupted",)
    told = asked(a, b, not_valid="leave-out")
    assert isinstance(told, Told)
    assert (len(told.sides[1].runs), told.remarks) == (1, ("left out: b1: it was interrupted",))
    used = asked(a, b, not_valid="use")
    assert isinstance(used, Told)
    assert len(used.sides[1].runs) == 2
    with pytest.raises(UsageError, match="side B has no run left"):
        asked(a, Side("B", (bad,)), not_valid="leave-out")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"fail_if": ("retrieve.p98 > 1%",)}, "no figure is called retrieve.p98; near: retrieve"),
        ({"figure": ("retreive.p99",)}, "--figure retreive.p99: no figure is called so; near"),
        ({"allow": ("machin",)}, "--allow machin: no report has that key; near: machine"),
    ],
)
def test_names_that_nothing_has(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        asked(*sides(), **options)


def test_a_gate_is_looked_at_beside_the_figures_asked_for() -> None:
    told = asked(*sides(), figure=("store.*",), fail_if=("retrieve.p50 > +10%",))
    assert isinstance(told, Told)
    assert {row.figure.name for row in told.comparison.rows} == {
        "store.gb_per_s",
        "retrieve.p50",
    }
