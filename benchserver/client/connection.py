"""A connection to an MP server, as its callers see it: the interface, and how a call fails.

Knows no transport.  `zmq` implements it over the network, `scripted` in virtual time, for tests.
Everything that is not the answer to a waiting call (late, duplicate, unknown or malformed
replies) goes to the observer that a connection was opened with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.dialect import Dialect
from protocol.messages import Event, Reply
from protocol.ops import Op

Observer = Callable[[Event], None]


class CallFailedError(Exception):
    """A call without a usable answer: whether the server acted on it is unknown."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(f"{op.name}: {reason}")
        self.op = op
        self.reason = reason


class NoAnswerError(CallFailedError):
    """The deadline passed; `ours`: in part because this process stood still meanwhile."""

    def __init__(self, op: Op, reason: str, *, ours: bool = False) -> None:
        super().__init__(op, reason)
        self.ours = ours


class BadAnswerError(CallFailedError):
    """The answer broke the protocol."""


class ConnectionLostError(CallFailedError):
    """The connection ended while the call waited."""


Ending = Reply | CallFailedError
"""How a call ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What has become of a connection so far."""

    lost: int = 0
    """How often it was lost."""
    greeted: bool = False
    """Whether the peer has ever spoken our transport's language."""
    spoke_otherwise: bool = False
    """Whether the peer has hung up, or said something else, before it ever did."""
    answered: int = 0
    """How many calls have had their answer, PINGs apart, which say nothing of the work."""
    owed: tuple[Op, ...] = ()
    """What is waited for now."""


class Connection(Protocol):
    """One way to one server; many calls may wait on it at once."""

    @property
    def dialect(self) -> Dialect:
        """Return the release of the protocol that it speaks."""
        ...

    @property
    def standing(self) -> Standing:
        """Return what has become of it so far."""
        ...

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        """Send a request and return its reply; `timeout_ns` None: that of the connector.

        Raises NoAnswerError at the deadline, BadAnswerError, ConnectionLostError; and
        LocalProtocolError if the request cannot be sent at all.
        """
        ...

    async def close(self) -> None:
        """End it; waiting calls fail as lost.  A second time does nothing."""
        ...


class Connector(Protocol):
    """Opens connections to one server."""

    def open(self, dialect: Dialect, observer: Observer) -> Connection:
        """Return a new connection, inside a running event loop; FatalError if it cannot be."""
        ...

    async def close(self) -> None:
        """Close every connection that is still open, and what they share."""
        ...
