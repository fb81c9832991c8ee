"""Linux's timerfd, which Python offers from 3.13 on, by way of the C library."""

from __future__ import annotations

import ctypes
import os
import sys

from benchserver.clock import NS_PER_S

NO_TIMER = -1
"""Answer of `open_timer` where the system has none to give."""

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


def open_timer() -> int:
    """Return the descriptor of a new timer on the monotonic clock, or NO_TIMER."""
    if sys.platform != "linux":
        return NO_TIMER
    return int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))


def arm_timer(descriptor: int, deadline_ns: int) -> None:
    """Let a timer become readable at a moment of the monotonic clock, at once if it is past."""
    seconds, ns = divmod(max(1, deadline_ns), NS_PER_S)
    spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(seconds, ns))
    if _LIBC.timerfd_settime(descriptor, _ABSOLUTE, ctypes.byref(spec), None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_LIBC = ctypes.CDLL(None, use_errno=True)
