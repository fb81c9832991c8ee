"""What a fault is: data, and the functions that commit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.ops import Op
from tests.mitm.httpproxy import DigestHandler
from tests.mitm.link import Handler

HANDLE, SHM, INLINE = "handle", "shm", "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a server lies.

    words: literal words that the bench's standard output must hold.
    checks: the checks that must not be valid, by name; none means that nothing is wrong.
    options: further options of the bench.
    transport: which transport it needs.
    gap: why bench-server does not catch it today; "" if it does.
    """

    name: str
    meaning: str
    rpc: Mapping[Op, Handler] = field(default_factory=dict)
    digests: DigestHandler | None = None
    words: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    transport: str = HANDLE
    gap: str = ""

    @property
    def harmless(self) -> bool:
        """Tell whether a bench must pass."""
        return not self.checks


SHORT = ("--timeout", "1")
"""A deadline that makes faults of silence quick to find."""
