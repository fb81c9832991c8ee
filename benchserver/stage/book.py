"""The book of a run: what was found, what was measured, and who is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchserver.check.verdict import Finding, Verdict, worst
from benchserver.history import Probe
from benchserver.reporter import Reporter
from benchserver.stage.traits import Traits
from benchserver.stats.measures import Measures


class Book:
    """Findings, figures and counts of one run, in bounded memory."""

    def __init__(self, traits: Traits, reporter: Reporter) -> None:
        self.reporter = reporter
        self.ledger = traits.ledger()
        self.measures = Measures(traits.series, traits.rates)
        self.counts = dict.fromkeys(Verdict, 0)
        """How many units of work were concluded with each verdict."""

    @property
    def concluded(self) -> int:
        """Return how many units of work were concluded."""
        return sum(self.counts.values())

    def conclude(self, label: str, findings: Sequence[Finding], probes: Iterable[Probe]) -> None:
        """Enter what was found about one unit of work and the probes that it made; tell of it."""
        self.ledger.add(findings)
        self.ledger.add_probes(probes)
        self.counts[worst(findings)] += 1
        self.reporter.concluded(label, findings)
