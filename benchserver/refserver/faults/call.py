"""What a fault sees of a call, and may do: before its handler, before the wire, over HTTP.

A fault decides with `fires()`, once a call that it is meant for has come; what it does with any
other call is to pass it on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchserver.refserver.core import Core
from benchserver.refserver.faults.moments import Moment
from benchserver.refserver.faults.settings import EVERY_RANK, Settings
from protocol.keys import CacheKey
from protocol.messages import Incoming
from protocol.ops import Op

MAX_NOTES = 4096
"""What one fault remembers of past calls; the oldest goes first."""

Frames = tuple[bytes, ...]


class Notes:
    """A bounded memory of one switched-on fault."""

    def __init__(self) -> None:
        self._notes: OrderedDict[Any, Any] = OrderedDict()

    def put(self, name: Any, value: Any) -> None:
        """Remember a value, the newest."""
        self._notes.pop(name, None)
        self._notes[name] = value
        if len(self._notes) > MAX_NOTES:
            self._notes.popitem(last=False)

    def get(self, name: Any) -> Any:
        """Return what was remembered, or None."""
        return self._notes.get(name)

    def take(self, name: Any) -> Any:
        """Forget what was remembered, and return it, or None."""
        return self._notes.pop(name, None)


@dataclass(slots=True, kw_only=True)
class Active:
    """A fault that is switched on: its settings, its counters, its memory."""

    text: str
    settings: Settings
    moment: Moment
    core: Core
    start: Callable[[Coroutine[Any, Any, None]], None]
    """Runs a coroutine beside the calls, until the server stops."""
    turns: int = 0
    fired: int = 0
    notes: Notes = field(default_factory=Notes)

    def fires(self) -> bool:
        """Count a matching call, and tell whether the fault fires at it."""
        self.turns += 1
        fires = self.moment.fires(self.turns)
        self.fired += fires
        return fires

    def concerns(self, args: Sequence[Any]) -> bool:
        """Tell whether a request is of the rank that the fault is meant for."""
        if self.settings.rank == EVERY_RANK:
            return True
        key = args[0] if args else None
        return isinstance(key, CacheKey) and key.worker_id == self.settings.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request before its handler."""

    active: Active
    op: Op
    args: Sequence[Any]
    handle: Callable[[Sequence[Any]], Awaitable[Any]]

    @property
    def core(self) -> Core:
        """Return the server's state."""
        return self.active.core

    @property
    def settings(self) -> Settings:
        """Return what was set about the fault."""
        return self.active.settings

    @property
    def notes(self) -> Notes:
        """Return the fault's memory."""
        return self.active.notes

    @property
    def key(self) -> CacheKey:
        """Return the key, for operations that start with one."""
        key: CacheKey = self.args[0]
        return key

    @property
    def now_ns(self) -> int:
        """Return the time."""
        return self.core.clock.now_ns()

    @property
    def chunks(self) -> int:
        """Return how many chunks the key's range has."""
        return max(0, self.key.end - self.key.start) // self.core.config.chunk_size

    def fires(self) -> bool:
        """Count this call as one that matches, and tell whether the fault fires at it."""
        return self.active.fires()

    async def proceed(self) -> Any:
        """Let the request be handled as it came, and return the result."""
        return await self.handle(self.args)

    async def proceed_with(self, first: Any) -> Any:
        """Let the request be handled with another first argument."""
        return await self.handle((first, *self.args[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCall:
    """One reply before it is sent."""

    active: Active
    request: Incoming
    frames: Frames
    send: Callable[[Frames], Awaitable[None]]

    async def send_unaltered(self) -> None:
        """Send the reply."""
        await self.send(self.frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An HTTP answer; `cut`: its connection ends in the middle of it."""

    status: int
    body: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One HTTP request before its handler."""

    active: Active
    ask: Callable[[], Awaitable[HttpAnswer]]
