"""Verdicts and findings, how they add up, and the ledger that keeps them in bounded memory."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchserver.history import Probe


class Verdict(enum.IntEnum):
    """valid < unknown < invalid: the worst of several holds for all."""

    VALID = 0
    UNKNOWN = 1
    INVALID = 2


@dataclass(frozen=True, slots=True)
class Check:
    """One property that a run is judged by, by its name in reports; a scenario brings its own.

    `explained`: it fails for want of room, of a thread, or of a registration, so that what the
    server says of itself may explain it.
    """

    name: str
    meaning: str
    explained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One judgement; `text` says why, in one line, unless it is valid.

    `follows`: it says nothing of its own, but that something before it went wrong.
    """

    check: Check
    verdict: Verdict
    text: str = ""
    follows: bool = False


def passed(check: Check) -> Finding:
    """Return a valid finding."""
    return Finding(check=check, verdict=Verdict.VALID)


def failed(check: Check, text: str) -> Finding:
    """Return an invalid finding."""
    return Finding(check=check, verdict=Verdict.INVALID, text=text)


def unproven(check: Check, text: str) -> Finding:
    """Return an unknown finding: what should have been looked at was not."""
    return Finding(check=check, verdict=Verdict.UNKNOWN, text=text)


def not_looked_at(check: Check, text: str) -> Finding:
    """Return an unknown finding that only follows from another: the run did not come to it."""
    return Finding(check=check, verdict=Verdict.UNKNOWN, text=text, follows=True)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict; none at all is unknown."""
    verdicts = [finding.verdict for finding in findings]
    return max(verdicts) if verdicts else Verdict.UNKNOWN


NOT_REACHED = "the run did not get that far"
"""Why a probe was not made that could have been."""

MAX_TEXTS = 20
"""How many failures of one check are kept word for word; the rest are counted."""


@dataclass(slots=True)
class Tally:
    """How often one check passed, failed and stayed unproven, and its first failures."""

    passed: int = 0
    failed: int = 0
    unproven: int = 0
    following: int = 0
    """How many of those that did not pass only follow from another finding."""
    texts: list[str] = field(default_factory=list)
    cause: str = ""
    """The first failure that does not."""
    skipped: str = ""

    @property
    def spoken(self) -> bool:
        """Tell whether there was any finding."""
        return bool(self.passed or self.failed or self.unproven)

    @property
    def verdict(self) -> Verdict:
        """Return the check's verdict; a check that never ran is unknown, unless skipped."""
        if self.failed:
            return Verdict.INVALID
        if self.unproven or (not self.passed and not self.skipped):
            return Verdict.UNKNOWN
        return Verdict.VALID


@dataclass(slots=True)
class ProbeTally:
    """In how many sequences a probe was made; `never` says why it could not be, if not at all."""

    made: int = 0
    never: str = ""


class Ledger:
    """Tallies of every check of a run, in the order of reports, and of its probes."""

    def __init__(self, checks: Iterable[Check], probes: Iterable[Probe] = ()) -> None:
        self.tallies: dict[Check, Tally] = {check: Tally() for check in checks}
        self.probes: dict[Probe, ProbeTally] = {probe: ProbeTally() for probe in probes}

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for finding in findings:
            tally = self.tallies[finding.check]
            if finding.verdict is Verdict.VALID:
                tally.passed += 1
                continue
            if finding.verdict is Verdict.INVALID:
                tally.failed += 1
            else:
                tally.unproven += 1
            if finding.follows:
                tally.following += 1
            else:
                tally.cause = tally.cause or finding.text
            if len(tally.texts) < MAX_TEXTS:
                tally.texts.append(finding.text)

    def skip(self, check: Check, reason: str) -> None:
        """Say that a check was not asked for, or cannot apply here."""
        self.tallies[check].skipped = reason

    def rule_out(self, probe: Probe, reason: str) -> None:
        """Say why no sequence can carry a probe."""
        self.probes[probe].never = reason

    def add_probes(self, made: Iterable[Probe]) -> None:
        """Count the probes of one sequence."""
        for probe in made:
            self.probes[probe].made += 1

    def not_evaluated(self) -> dict[str, str]:
        """Return what a run owes and did not look at, checks and probes, by name: the reasons."""
        missing = {
            check.name: tally.skipped
            for check, tally in self.tallies.items()
            if tally.skipped and not tally.spoken
        }
        for probe, made in self.probes.items():
            if not made.made:
                missing.setdefault(probe.name, made.never or NOT_REACHED)
        return missing

    def verdict(self) -> Verdict:
        """Return the run's verdict."""
        return max(tally.verdict for tally in self.tallies.values())
