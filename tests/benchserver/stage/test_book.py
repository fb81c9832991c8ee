"""The book of a run: what is entered, counted and told."""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.check.run import RUN, STAGE_CHECKS
from benchserver.check.sessions import SESSIONS
from benchserver.check.verdict import Check, Finding, Verdict, failed, passed, unproven
from benchserver.clock import VirtualClock
from benchserver.history import Probe, Step
from benchserver.section import Section
from benchserver.stage.book import Book
from benchserver.stage.traits import Traits
from benchserver.stats.measures import Series

GOOD, LATE = Check("good", "it is good"), Check("late", "it is in time")
ASKED = Probe("asked")
WAIT = Series("wait")
TRAITS = Traits(name="try", unit="try", checks=(GOOD, LATE), probes=(ASKED,), series=(WAIT,))


class Heard:
    """A reporter that keeps what it hears of units."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def step(self, label: str, step: Step) -> None:
        raise AssertionError(label)

    def concluded(self, label: str, findings: Sequence[Finding]) -> None:
        self.told.append((label, len(findings)))


def test_it_holds_the_checks_of_the_scenario_before_those_of_every_run() -> None:
    book = Book(TRAITS, Heard(), VirtualClock())
    assert list(book.ledger.tallies) == [GOOD, LATE, SESSIONS, *STAGE_CHECKS]
    assert list(book.ledger.probes) == [ASKED]
    assert list(book.measures.latencies) == [WAIT]
    assert book.concluded == 0


def test_every_unit_counts_once_by_its_worst_finding() -> None:
    heard = Heard()
    book = Book(TRAITS, heard, VirtualClock())
    book.conclude("try=0", [passed(GOOD), passed(LATE)], [ASKED])
    book.conclude("try=1", [passed(GOOD), unproven(LATE, "no answer")], [])
    book.conclude("try=2", [failed(GOOD, "bad"), unproven(LATE, "no answer")], [ASKED])
    book.conclude("try=3", [], [])
    assert book.counts == {Verdict.VALID: 1, Verdict.UNKNOWN: 2, Verdict.INVALID: 1}
    assert book.concluded == 4
    assert book.ledger.probes[ASKED].made == 2
    assert book.ledger.tallies[GOOD].texts == ["bad"]
    assert heard.told == [("try=0", 2), ("try=1", 2), ("try=2", 2), ("try=3", 0)]


def test_sections_are_made_when_they_are_asked_for_and_one_that_fails_is_said() -> None:
    book = Book(TRAITS, Heard(), VirtualClock())
    book.add_section(
        lambda: Section(key="tries", title="", lines=(), document={"done": book.concluded})
    )
    book.add_section(lambda: Section(key="late", title="", lines=(), document={"ratio": 1 / 0}))
    book.conclude("try=0", [passed(GOOD)], [])
    assert [one.document for one in book.sections()] == [{"done": 1}]
    tally = book.ledger.tallies[RUN]
    assert tally.verdict is Verdict.UNKNOWN
    assert "ZeroDivisionError: division by zero" in tally.texts[0]
