"""All connections of a run to its server: opened, watched, counted and closed.

What comes over one of them that nobody waits for goes to the ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlsplit

from benchserver.check.judging import evaluated
from benchserver.check.replies import REPLIES, judge_event
from benchserver.check.verdict import Ledger
from benchserver.client import discovery
from benchserver.client.connection import Connection, Connector
from benchserver.client.names import in_url
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.target import Target
from benchserver.history import worker_label
from benchserver.stage.alive import NEVER_NS, AliveCheck
from protocol.dialect import Dialect
from protocol.messages import Event, LateReply

_FIRST = worker_label(None, 0)
"""The worker that the first connection becomes, once there are workers."""

Reach = Callable[[Target, Clock], Awaitable[Connector]]
"""Finds the server of an address; FatalError if nothing is there."""


async def reach_zmq(target: Target, clock: Clock) -> Connector:
    """Wait until something listens at --rpc-url, and return what opens connections to it."""
    # Loaded here: another transport does without.
    from benchserver.client.zmq import ZmqConnector

    parts = urlsplit(target.rpc_url)
    host, port = parts.hostname or "", parts.port or 0
    address = await discovery.reach(
        host,
        port,
        clock=clock,
        wait_s=target.wait_ready_s,
        timeout_s=target.timeout_s,
    )
    return ZmqConnector(
        target.rpc_url,
        clock=clock,
        timeout_ns=int(target.timeout_s * NS_PER_S),
        address=f"tcp://{in_url(address)}:{port}",
    )


class Connections:
    """Opens connections to the server once it was reached; those of the run are kept."""

    def __init__(self, *, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._connector: Connector | None = None
        self.opened: list[Connection] = []
        """Those that live as long as the run, the first one first."""
        self.alive: AliveCheck | None = None
        """Knows when the server last gave a sign of life, once it was met."""
        self.given_up = False
        """The server was lost: what it still answers to was cut short, and is not late."""

    def reached(self, connector: Connector) -> None:
        """Take what opens connections; it is closed with them."""
        self._connector = connector

    def open(self, dialect: Dialect, place: str = _FIRST) -> Connection:
        """Open the connection of a worker, as lines call it; it lives as long as the run."""
        connection = self.ask(dialect, place)
        self.opened.append(connection)
        return connection

    def ask(self, dialect: Dialect, place: str = _FIRST) -> Connection:
        """Open a connection that the caller closes; LookupError before the server was reached."""
        if self._connector is None:
            raise LookupError("no server was reached")

        def observe(event: Event) -> None:
            if isinstance(event, LateReply) and (event.withdrawn or self.given_up):
                return  # we were told to stop, and the server could not know
            alive_ns = NEVER_NS if self.alive is None else self.alive.answered_ns
            now_ns = self._clock.now_ns()
            look = partial(judge_event, event, place, now_ns=now_ns, alive_ns=alive_ns)
            self._ledger.add([evaluated(REPLIES, place, look)])

        return self._connector.open(dialect, observe)

    @property
    def lost(self) -> int:
        """Return how often one of the run's connections was lost."""
        return sum(connection.standing.lost for connection in self.opened)

    async def close(self) -> None:
        """Close all that were opened; waiting calls end as lost."""
        if self._connector is not None:
            await self._connector.close()
