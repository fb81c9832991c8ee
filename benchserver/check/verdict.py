"""Verdicts and findings, how they add up, and the ledger that keeps them in bounded memory."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchserver.load.probes import Probe


class Verdict(enum.IntEnum):
    """valid < unknown < invalid: the worst of several holds for all."""

    VALID = 0
    UNKNOWN = 1
    INVALID = 2


class Check(enum.Enum):
    """Every property that a run is judged by; the value is its name in reports."""

    COLD_LOOKUP = "cold_lookup"
    STORE = "store"
    VISIBILITY = "visibility"
    WARM_LOOKUP = "warm_lookup"
    RETRIEVE = "retrieve"
    CONTENT = "content"
    SOURCE = "source"
    CANARIES = "canaries"
    DIGESTS = "digests"
    PARTIAL = "partial"
    ISOLATION = "isolation"
    BOUNDS = "bounds"
    SESSIONS = "sessions"
    REPLIES = "replies"
    TRANSPORT = "transport"
    HEALTH = "health"
    RESIDUE = "residue"
    RUN = "run"


MEANINGS: dict[Check, str] = {
    Check.COLD_LOOKUP: "the first LOOKUP hits exactly the chunks that it must",
    Check.STORE: "every rank's STORE is answered, and accepted",
    Check.VISIBILITY: "stored chunks are found by LOOKUP within --visible-within",
    Check.WARM_LOOKUP: "LOOKUP counts exactly the stored chunks",
    Check.RETRIEVE: "every rank's RETRIEVE is answered, and accepted",
    Check.CONTENT: "every byte of every rank's destination blocks is right",
    Check.SOURCE: "no byte of a source block was altered but by us",
    Check.CANARIES: "no byte beside the destination blocks was written",
    Check.DIGESTS: "the server's digests equal ours, source and destination",
    Check.PARTIAL: "a RETRIEVE told to skip the first tokens writes all other blocks, no more",
    Check.ISOLATION: "LOOKUP under another cache salt or model name misses",
    Check.BOUNDS: "LOOKUP of a range that ends before the stored end hits exactly that far",
    Check.SESSIONS: "every lock is freed and every session ended, with an answer",
    Check.REPLIES: "no late, duplicate, unknown or malformed reply, no lost connection",
    Check.TRANSPORT: "the transport that was asked for was used",
    Check.HEALTH: "by its own /status, the server is well, before the run and after",
    Check.RESIDUE: "no registration, session or lock of ours stays on the server",
    Check.RUN: "the run did what it was asked to, to its end",
}


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


NOT_REACHED = "no sequence came so far"
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
    """Tallies of every check of a run, and of its probes."""

    def __init__(self) -> None:
        self.tallies: dict[Check, Tally] = {check: Tally() for check in Check}
        self.probes: dict[Probe, ProbeTally] = {probe: ProbeTally() for probe in Probe}

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
            check.value: tally.skipped
            for check, tally in self.tallies.items()
            if tally.skipped and not (tally.passed or tally.failed or tally.unproven)
        }
        for probe, made in self.probes.items():
            if not made.made:
                missing.setdefault(probe.value, made.never or NOT_REACHED)
        return missing

    def verdict(self) -> Verdict:
        """Return the run's verdict."""
        return max(tally.verdict for tally in self.tallies.values())
