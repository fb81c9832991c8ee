"""What a run of the self-test is: data."""

from __future__ import annotations

from dataclasses import dataclass

from benchserver.errors import EXIT_FAILED, EXIT_OK

HANDLE, SHM, INLINE = "handle", "shm", "inline"
CONTROL = "none"
"""The name of the runs without a fault."""

FOLDER = "{folder}"
"""Stands, in a server's options, for an empty folder of the run's own, as in a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run into one fault.

    switch: the fault as `serve --fault` takes it, "" for none.
    checks: the checks that must not be valid, the first of them the one to be named; none at all
        means that everything must be proven.
    words: what the line of the first check must say.
    options: further options of the bench.  before: options of a bench that runs first.
    from_l2: between the two, L1 is emptied, so that all must come from the L2 tiers.
    serve: further options of the server, FOLDER in them.  note: what tells this run from others of
        the fault.
    """

    switch: str
    checks: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    before: tuple[str, ...] | None = None
    from_l2: bool = False
    serve: tuple[str, ...] = ()
    transport: str = HANDLE
    note: str = ""

    @property
    def fault(self) -> str:
        """Return the fault's name."""
        return self.switch.partition("@")[0].partition(":")[0] or CONTROL

    @property
    def label(self) -> str:
        """Return what tells this run from all others."""
        where = f"{self.transport}, {self.note}" if self.note else self.transport
        return f"{self.switch or CONTROL} [{where}]"

    @property
    def expected_exit(self) -> int:
        """Return the bench's exit code if it is right."""
        return EXIT_FAILED if self.checks else EXIT_OK
