"""What a run knows of its scenario: values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchserver.check.run import new_ledger
from benchserver.check.verdict import Check, Ledger
from benchserver.config.engine import Engine
from benchserver.geometry import Geometry
from benchserver.history import Probe
from benchserver.stats.measures import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of a scenario before anything is sent.

    `unit` is what its counts count, as reports name one: "sequence".  `checks` and `probes` are
    its own; the stage adds those of every run.  `series` and `rates` are its figures, in the order
    of reports.  Without `workers` nothing is allocated and registered.  So many `clients` are
    played, each with `in_flight` requests under way at once, in leases of its pools.  `at_once`
    requests must fit into the server's L1 together.  `turns` are the turns of `kv.blocks` that it
    begins with: their blocks are written once before it plays, so that no request pays for page
    faults.  `fits`, if there is one, is asked before anything is allocated, and told how many bytes
    the server's L1 has (0: it does not say): it raises UsageError for requests that cannot be made.
    `owes_growth`: a run that cannot tell yet whether anything grows has not proven enough.
    """

    name: str
    unit: str
    checks: tuple[Check, ...]
    probes: tuple[Probe, ...] = ()
    series: tuple[Series, ...] = ()
    rates: tuple[Series, ...] = ()
    workers: bool = True
    clients: int = 1
    in_flight: int = 1
    at_once: int = 1
    turns: range = range(0)
    owes_growth: bool = False
    fits: Callable[[Engine, Geometry, int], None] | None = None

    def ledger(self) -> Ledger:
        """Return the empty ledger of a run of it: its checks and probes, and those of every run."""
        return new_ledger(self.checks, self.probes, workers=self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Omissions:
    """Which checks and probes this run leaves out, wholly or in part, and why."""

    checks: Mapping[Check, str] = field(default_factory=dict)
    probes: Mapping[Probe, str] = field(default_factory=dict)
