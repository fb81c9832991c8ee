"""The result of a run, as reports and the exit code need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchserver.check.run import RUN
from benchserver.check.verdict import Ledger, Verdict, failed
from benchserver.config.run import RunConfig
from benchserver.errors import EXIT_FAILED, EXIT_OK
from benchserver.kv.placement import RankDevice
from benchserver.section import Section
from benchserver.stats.measures import Measures


@dataclass(slots=True, kw_only=True)
class ServerFacts:
    """What the run learned of its target."""

    rpc_url: str
    http_url: str
    version: str = ""
    release: str = ""
    chunk_tokens: int = 0
    transfer_mode: str = ""
    transport: str = ""

    @property
    def embedded(self) -> bool:
        """Tell whether the target is our own embedded server: no evidence about LMCache."""
        return "embedded" in self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccount:
    """What the server said of itself over HTTP, without its secrets.

    `configuration` is what it was started with, None if it is not known, for the reason `unread`.
    `l1_bytes` is the size of its L1; `l1_used_before` and `l1_used_after` are what lay in it.
    """

    configuration: Mapping[str, Any] | None = None
    unread: str = "no run was made"
    l1_bytes: int | None = None
    l1_used_before: int | None = None
    l1_used_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Everything that a report says."""

    config: RunConfig
    server: ServerFacts
    devices: tuple[RankDevice, ...] = ()
    """Each rank's GPU; none in cpu mode."""
    ledger: Ledger
    measures: Measures
    sequences_ok: int
    sequences_failed: int
    sequences_unproven: int
    interrupted: bool
    wall_ns: int
    sections: tuple[Section, ...] = ()
    """What the scenario adds to the reports."""
    nonce: str = ""
    """What the ids of this run's requests begin with."""
    account: ServerAccount = field(default_factory=ServerAccount)

    @property
    def verdict(self) -> Verdict:
        """Return the run's verdict: the worst of all checks."""
        return self.ledger.verdict()

    @property
    def exit_code(self) -> int:
        """Return 0 only for a run that proved everything it was asked to."""
        return EXIT_OK if self.verdict is Verdict.VALID else EXIT_FAILED


def result_of_no_run(
    config: RunConfig, ledger: Ledger, why: str, *, interrupted: bool
) -> RunResult:
    """Return the result of a run that could not begin: nothing is proven, and `why` is said.

    `ledger` has the checks that would have been made.
    """
    ledger.add([failed(RUN, why)])
    return RunResult(
        config=config,
        server=ServerFacts(rpc_url=config.target.rpc_url, http_url=config.target.http_url),
        ledger=ledger,
        measures=Measures(),
        sequences_ok=0,
        sequences_failed=0,
        sequences_unproven=0,
        interrupted=interrupted,
        wall_ns=0,
    )
