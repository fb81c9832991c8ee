"""The switchboard: which faults are on, and what of the server is wrapped because of it.

A fault that is switched on wraps the handlers of the operations that it concerns or the L2 tiers,
and stands between the replies, or the HTTP answers, and their way out.  Replacing the set takes
all of that out again; calls that are under way end as they began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from functools import partial
from typing import Any, Protocol

from benchserver.errors import UsageError
from benchserver.refserver.core import Core, Handler
from benchserver.refserver.faults.call import (
    Active,
    Call,
    Frames,
    HttpAnswer,
    HttpCall,
    ReplyCall,
)
from benchserver.refserver.faults.fault import Act, HttpAct, ReplyAct, TierAct
from benchserver.refserver.faults.parser import Switch, parse_switches
from protocol.messages import Incoming
from protocol.ops import Op

Ask = Callable[[], Awaitable[HttpAnswer]]
Send = Callable[[Frames], Awaitable[None]]
Tamper = Callable[[Incoming, Frames, Send], Awaitable[None]]


class ReplyRoad(Protocol):
    """The way of replies to the clients."""

    def tamper_with(self, tamper: Tamper | None) -> None:
        """Let every reply pass through a function that sends it, or not; None: through none."""
        ...


class Switchboard:
    """The faults of one server."""

    def __init__(
        self,
        core: Core,
        handlers: MutableMapping[Op, Handler],
        road: ReplyRoad,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`handlers` is the table that the server looks into; `start` runs a coroutine."""
        self._core = core
        self._handlers = handlers
        self._unaltered = dict(handlers)
        self._road = road
        self._start = start
        self._active: list[tuple[Switch, Active]] = []
        self._undo: list[Callable[[], None]] = []

    def replace(self, texts: Sequence[str]) -> None:
        """Switch exactly these faults on; UsageError, and no change, if one cannot be."""
        switches = parse_switches(texts)
        self._check_tiers(switches)
        self._take_out()
        for switch in switches:
            active = Active(
                text=switch.text,
                settings=switch.settings,
                moment=switch.moment,
                core=self._core,
                start=self._start,
            )
            self._active.append((switch, active))
            self._install(switch, active)
        if any(switch.fault.reply is not None for switch in switches):
            self._road.tamper_with(self._deliver)

    def document(self) -> dict[str, Any]:
        """Return which faults are on, how many calls matched, and how many of them were hit."""
        return {
            "faults": [
                {
                    "fault": active.text,
                    "meaning": switch.fault.meaning,
                    "calls": active.turns,
                    "fired": active.fired,
                }
                for switch, active in self._active
            ]
        }

    def answer_of(self, path: str) -> Callable[[Ask], Awaitable[HttpAnswer]] | None:
        """Return what stands between a path's answers and their way out, or None."""
        acts = [
            (act, active)
            for switch, active in self._active
            if (act := switch.fault.http.get(path)) is not None
        ]
        return partial(_answer_through, acts) if acts else None

    def _check_tiers(self, switches: Sequence[Switch]) -> None:
        for switch in switches:
            if switch.fault.tier is not None and self._core.backing is None:
                raise UsageError(
                    f"fault {switch.text!a}: this server has no L2 tier, start it with --l2"
                )

    def _take_out(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._handlers.update(self._unaltered)
        self._road.tamper_with(None)
        self._active.clear()

    def _install(self, switch: Switch, active: Active) -> None:
        for op, act in switch.fault.acts(switch.settings).items():
            if op in self._handlers:
                self._handlers[op] = _intercepted(op, act, active, self._handlers[op])
        if switch.fault.tier is not None:
            self._undo.append(self._wrap_tiers(switch.fault.tier, active))
        self._undo.append(switch.fault.patch(active))

    def _wrap_tiers(self, act: TierAct, active: Active) -> Callable[[], None]:
        backing = self._core.backing
        assert backing is not None, "_check_tiers lets no other server through"
        tiers = backing.tiers
        backing.tiers = tuple(act(active, tier) for tier in tiers)

        def restore() -> None:
            backing.tiers = tiers

        return restore

    async def _deliver(self, request: Incoming, frames: Frames, send: Send) -> None:
        for switch, active in self._active:
            act = switch.fault.reply
            if act is None or request.op not in active.settings.ops:
                continue
            if active.concerns(request.args):
                send = _reply_hook(act, active, request, send)
        await send(frames)


def _intercepted(op: Op, act: Act, active: Active, handler: Handler) -> Handler:
    async def handle(args: Sequence[Any]) -> Any:
        if not active.concerns(args):
            return await handler(args)
        return await act(Call(active=active, op=op, args=args, handle=handler))

    return handle


def _reply_hook(act: ReplyAct, active: Active, request: Incoming, send: Send) -> Send:
    async def hook(frames: Frames) -> None:
        await act(ReplyCall(active=active, request=request, frames=frames, send=send))

    return hook


async def _answer_through(acts: Sequence[tuple[HttpAct, Active]], ask: Ask) -> HttpAnswer:
    if not acts:
        return await ask()
    *inner, (act, active) = acts
    return await act(HttpCall(active=active, ask=partial(_answer_through, inner, ask)))
