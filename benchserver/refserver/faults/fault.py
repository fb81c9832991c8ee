"""What a fault is: its name and meaning, the functions that commit it, and what may be set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchserver.refserver.faults.call import Active, Call, HttpAnswer, HttpCall, ReplyCall
from benchserver.refserver.faults.settings import PARAMS, Settings
from benchserver.refserver.tiers.tier import Tier
from protocol.ops import Op

Act = Callable[[Call], Awaitable[Any]]
"""Commits a fault in place of a handler: returns the result, or raises RefusalError for silence."""

ReplyAct = Callable[[ReplyCall], Awaitable[None]]
HttpAct = Callable[[HttpCall], Awaitable[HttpAnswer]]

TierAct = Callable[[Active, Tier], Tier]
"""Puts a fault around an L2 tier."""

Patch = Callable[[Active], Callable[[], None]]
"""Alters a part of the server itself, and returns what takes that back."""


def no_patch(_active: Active) -> Callable[[], None]:
    """Alter nothing."""
    return lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a server lies.

    calls: what is done with requests, by operation; `acts` on all that the setting `op` names.
    reply: what is done with the replies to them.  http: what is done with answers, by path.
    tier: what is put around each L2 tier.
    params: what a switch may set, in the order in which values without a name are taken.
    harmless: a bench must pass, as long as the defaults are kept.
    """

    name: str
    meaning: str
    calls: Mapping[Op, Act] = field(default_factory=dict)
    act: Act | None = None
    reply: ReplyAct | None = None
    http: Mapping[str, HttpAct] = field(default_factory=dict)
    tier: TierAct | None = None
    patch: Patch = no_patch
    params: tuple[str, ...] = ()
    defaults: Settings = field(default_factory=Settings)
    harmless: bool = False

    @property
    def hooks(self) -> str:
        """Say in a few words where the fault hooks in."""
        places = [op.name for op in self.calls]
        if self.act is not None:
            places.append("the call")
        if self.reply is not None:
            places.append("the reply")
        if self.tier is not None:
            places.append("the L2 tiers")
        if self.patch is not no_patch:
            places.append("the server")
        return ", ".join([*places, *self.http])

    @property
    def form(self) -> str:
        """Return the switch with all defaults, such as `late_reply:op=RETRIEVE,delay=1500ms`."""
        shown = [
            f"{name}={PARAMS[name].show(getattr(self.defaults, PARAMS[name].field))}"
            for name in self.params
        ]
        return f"{self.name}:{','.join(shown)}" if shown else self.name

    def acts(self, settings: Settings) -> Mapping[Op, Act]:
        """Return what is done with requests, by operation."""
        if self.act is None:
            return self.calls
        return {**dict.fromkeys(settings.ops, self.act), **self.calls}


def instead(act: Act) -> Act:
    """Return an act that is done in place of the handler, whenever the fault fires."""

    async def hooked(call: Call) -> Any:
        return await act(call) if call.fires() else await call.proceed()

    return hooked


Alter = Callable[[Call, Any], Any]


def after(alter: Alter, wanted: Callable[[Any], bool]) -> Act:
    """Return an act that alters results, or what they stand for, once the handler is done.

    The fault is not meant for calls whose result is not wanted.
    """

    async def hooked(call: Call) -> Any:
        result = await call.proceed()
        return alter(call, result) if wanted(result) and call.fires() else result

    return hooked
