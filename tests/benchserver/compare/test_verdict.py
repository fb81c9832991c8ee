"""The last line and the exit code."""

from __future__ import annotations

import pytest

from benchserver.compare.comparing import Comparison
from benchserver.compare.gates import Gate, Judged, Outcome
from benchserver.compare.reading import Side
from benchserver.compare.rows import Row
from benchserver.compare.verdict import Told
from tests.benchserver.compare.test_rows import row


def told(rows: list[Row], *outcomes: Outcome) -> Told:
    """Return a comparison with these rows, and a gate of each outcome."""
    gate = Gate(text="g", figure="retrieve.p99", above=True, bound=0.1)
    return Told(
        sides=(Side("A", ()), Side("B", ())),
        remarks=(),
        allowed=(),
        comparison=Comparison((), tuple(rows), ()),
        gates=tuple(Judged(gate, outcome, "") for outcome in outcomes),
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), 0),
        ((Outcome.HELD,), 0),
        ((Outcome.HELD, Outcome.CANNOT_TELL), 3),
        ((Outcome.CANNOT_TELL, Outcome.BROKEN), 1),
    ],
)
def test_the_worst_gate_decides(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert told([row("retrieve.p99", 0.5)], *outcomes).exit_code == code


def test_the_last_line() -> None:
    nothing = [row("retrieve.p99", 0.0, 1.0)]
    assert told(nothing).summary == "COMPARE: no difference shown in 1 figure (exit 0)"
    some = [*nothing, row("hit_ratio", -0.2), row("store.p50", 0.0953)]
    assert told(some, Outcome.BROKEN, Outcome.HELD).summary == (
        "COMPARE: a difference shown in 2 of 3 figures (hit_ratio worse -0.2, store.p50 worse "
        "+10.0%); gates broken: 1 of 2; gates held: 1 of 2 (exit 1)"
    )
    assert "cannot tell: a single run" in told([row("store.p50", 0.1, None)]).summary
