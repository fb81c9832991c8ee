"""The book of a run: what was found, what was measured, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchserver.check.run import RUN
from benchserver.check.verdict import Finding, Verdict, unproven, worst
from benchserver.clock import Clock
from benchserver.config.watch import Watch
from benchserver.history import Probe
from benchserver.line import Line
from benchserver.monitor.monitor import Monitor
from benchserver.reporter import Reporter
from benchserver.section import Section, make_sections
from benchserver.stage.traits import Traits
from benchserver.stats.measures import Measures


class Book:
    """Findings, figures and counts of one run, in bounded memory."""

    def __init__(
        self,
        traits: Traits,
        reporter: Reporter,
        clock: Clock,
        *,
        watch: Watch | None = None,
        total_units: int | None = None,
        lasts_s: float | None = None,
    ) -> None:
        """The run begins now, and ends after so many units or seconds, if anything says so."""
        self.reporter = reporter
        self.ledger = traits.ledger()
        self.measures = Measures(traits.series, traits.rates, clock.now_ns)
        self.counts = dict.fromkeys(Verdict, 0)
        """How many units of work were concluded with each verdict."""
        self.monitor = Monitor(
            unit=traits.unit,
            ledger=self.ledger,
            measures=self.measures,
            clock=clock,
            watch=watch,
            total_units=total_units,
            duration_s=lasts_s,
        )
        self.resting = 0
        """How many rest by plan just now: a run in which nothing else happens is not stalled."""
        self._away_s = 0.0
        self.cut = 0
        """How many units of work a restart of the server has cut short."""
        self._makers: list[Callable[[], Section]] = []

    @property
    def concluded(self) -> int:
        """Return how many units of work were concluded."""
        return sum(self.counts.values())

    def conclude(self, label: str, findings: Sequence[Finding], probes: Iterable[Probe]) -> None:
        """Enter what was found about one unit of work and the probes that it made; tell of it."""
        self.ledger.add(findings)
        self.ledger.add_probes(probes)
        self.counts[worst(findings)] += 1
        self.measures.concluded(worst(findings).value)
        self.monitor.concluded(label, findings)
        self.reporter.concluded(label, findings)

    def cut_short(self, label: str, number: int = 1) -> None:
        """Enter units of work that a restart of the server has cut short: nothing was found."""
        self.cut += number
        self.reporter.note(f"[{label}] cut short: the server was lost")

    def returned(self, took_s: float) -> None:
        """Enter that a server that was lost is back, and registered with."""
        self.monitor.reconnects += 1
        self._away_s += took_s
        times = self.monitor.reconnects
        self.reporter.note(
            f"The server is back after {took_s:.1f} s, and we are registered again "
            f"({times} {'time' if times == 1 else 'times'} by now)"
        )

    def restarts_section(self) -> Section:
        """Return the section on servers that were lost and came back."""
        times = self.monitor.reconnects
        text = "never"
        if times:
            text = f"{times} {'time' if times == 1 else 'times'}, {self._away_s:.1f} s in all"
        if self.cut:
            text += f"; {self.cut} units of work were cut short, and count as neither"
        return Section(
            key="reconnects",
            title="Connected again",
            lines=(Line(text),),
            document={"count": times, "away_s": self._away_s, "cut_short": self.cut},
        )

    def add_section(self, make: Callable[[], Section]) -> None:
        """Add a part to the reports: `make` is called once, when the run has ended."""
        self._makers.append(make)

    def sections(self) -> tuple[Section, ...]:
        """Make all sections; one that cannot be made leaves the run unproven, and says why."""
        made, missing = make_sections(self._makers)
        self.ledger.add(unproven(RUN, text) for text in missing)
        return made
