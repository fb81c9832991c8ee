"""A soak as lines."""

from __future__ import annotations

from benchserver.history import LookupRecord, Outcome
from benchserver.line import BAD
from benchserver.scenarios.baseline.plan import Pass
from benchserver.scenarios.soak.lines import WORDING, describe


def lookup(hits: int) -> LookupRecord:
    return LookupRecord(
        which=Pass.WARM,
        outcome=Outcome.OK,
        began_ns=0,
        ended_ns=1_000_000,
        hits=hits,
        expected=2,
        total=2,
    )


def test_what_is_well_has_no_line_and_what_is_not_has_that_of_the_baseline() -> None:
    assert describe("seq=3", lookup(2)) is None
    line = describe("seq=3", lookup(1))
    assert line is not None
    assert (line.text, line.style) == ("[seq=3] LOOKUP warm:  1/2 chunks hit (1.00 ms)", BAD)
    assert WORDING.proven == ""
