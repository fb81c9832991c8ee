"""What one run is asked for: its parts, and the options that they were made from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from benchserver.config.engine import Engine
from benchserver.config.target import Target
from benchserver.config.watch import Watch
from benchserver.errors import UsageError
from benchserver.options.option import Tables, options_in

MAX_WORKERS = 1 << 12
"""Their instance ids hold a run's nonce and their number, and stay exact in JSON."""


class Part(Protocol):
    """What a scenario of its own is asked: a frozen dataclass."""

    def check(self) -> None:
        """Raise UsageError for anything that cannot work."""
        ...

    @property
    def units(self) -> int | None:
        """Return how many units of work there will be; None: nobody knows."""
        ...

    @property
    def lasts_s(self) -> float | None:
        """Return the seconds after which its work is over; None: no time ends it."""
        ...

    @property
    def clients(self) -> int:
        """Return how many engines are played at once, each with workers of its own."""
        ...

    @property
    def in_flight(self) -> int:
        """Return how many requests each of them has under way at once, in leases of its pools."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that decides a run.

    `engine` None: the scenario plays none, and only asks.  `own` is what the scenario alone knows.
    `tables` say which option each field is, of whatever part; `command` is the command that has
    them, "" for that without a name.
    """

    target: Target
    engine: Engine | None
    own: Part
    tables: Tables
    command: str = ""
    watch: Watch = field(default_factory=Watch)

    @property
    def workers(self) -> int:
        """Return how many workers are played: the ranks of all clients."""
        return 0 if self.engine is None else self.engine.tp_size * self.own.clients

    @property
    def stalled_after_s(self) -> float:
        """Return after how many seconds without anything this run is stalled."""
        return self.watch.stalled_after(self.target.timeout_s)

    def values(self) -> dict[str, Any]:
        """Return the fields of all parts by their names, which are told apart."""
        return {
            each.name: getattr(part, each.name)
            for part in (self.target, self.engine, self.own, self.watch)
            if part is not None
            for each in fields(part)  # type: ignore[arg-type]  # a part is a dataclass
        }


def check_config(config: RunConfig) -> None:
    """Raise UsageError for anything that cannot work, as far as it is known before traffic."""
    values = config.values()
    for option in options_in(config.tables):
        if option.field and (problem := option.problem(values[option.field])):
            raise UsageError(problem)
    config.target.check()
    if config.engine is not None:
        config.engine.check()
    config.own.check()
    config.watch.check()
    if (workers := config.workers) > MAX_WORKERS:
        raise UsageError(
            f"{config.own.clients} clients of {workers // config.own.clients} ranks are {workers} "
            f"workers, a run has {MAX_WORKERS} at most"
        )
