"""The interval record of a run: one line of JSON now and then, for who looks at it next week.

Lines are added to what is in the file; each says at what time it was written.  A thread writes
them, so that a disk that is slow, or full, holds up nothing; what could not be written is known at
the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchserver.errors import UsageError, one_line, os_reason
from benchserver.monitor.snapshot import ResourceNow, Snapshot
from benchserver.outlet import Outlet, SecondsLeft, outlet_to

_WRITE_WITHIN_S = 2.0
_LAST_WITHIN_S = 0.2


def interval_document(now: Snapshot) -> dict[str, Any]:
    """Return a line of the record; figures without `total_` are those of the last minute."""
    return {
        "time": now.time,
        "at_s": round(now.at_s, 3),
        "phase": now.phase,
        "verdict": now.verdict.name.lower(),
        "unit": now.unit,
        "proven": now.proven,
        "failed": now.failed,
        "unproven": now.unproven,
        "calls": now.calls,
        "units_per_s": now.units_per_s,
        "operations": {
            one.name: {name: n for name, n in asdict(one).items() if name != "name"}
            for one in now.operations
        },
        "hits": None if now.hits is None else asdict(now.hits),
        "gb_per_s": dict(now.gb_per_s),
        "failed_checks": dict(now.failed_checks),
        "failures": list(now.failures),
        "resources": {one.name: _resource(one) for one in now.resources},
        "reconnects": now.reconnects,
        "stalled_s": now.stalled_s,
    }


def _resource(one: ResourceNow) -> dict[str, Any]:
    return {"value": one.value, "verdict": one.verdict, "slope_per_hour": one.slope_per_hour}


class IntervalLog:
    """A file that takes a line now and then."""

    def __init__(self, path: str, outlet: Outlet) -> None:
        self._path = path
        self._outlet = outlet

    def write(self, now: Snapshot) -> None:
        """Add a line, without waiting for it."""
        self._outlet.line(json.dumps(interval_document(now), allow_nan=False))

    @property
    def broken(self) -> str:
        """Say why nothing is written any more, or ""."""
        error = self._outlet.error
        return "" if error is None else self._trouble(os_reason(error))

    def settle(self, seconds_left: SecondsLeft) -> str:
        """Wait until all is written, and say why it is not, or ""."""
        reason = self._outlet.drain(_WRITE_WITHIN_S, seconds_left)
        return self._trouble(reason) if reason else ""

    def _trouble(self, reason: str) -> str:
        return f"cannot write the interval log {one_line(self._path, 200)}: {reason}"


@contextlib.contextmanager
def open_interval_log(path: str) -> Iterator[IntervalLog]:
    """Open a file to add lines to; UsageError if it cannot be."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    shown = one_line(path, 120) or "''"
    try:
        descriptor = os.open(path, flags, 0o644)
    except (OSError, ValueError) as error:  # ValueError: a NUL, which no name has
        reason = os_reason(error) if isinstance(error, OSError) else "no such name"
        raise UsageError(f"--interval-log {shown}: {reason}") from error
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.set_blocking(descriptor, True)
    outlet = outlet_to(descriptor)
    try:
        yield IntervalLog(path, outlet)
    finally:
        outlet.drain(_LAST_WITHIN_S)
        if outlet.ended_within(0):  # else its number may be given to a file that gets the rest
            os.close(descriptor)
