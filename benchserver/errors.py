"""Errors of the harness and the exit codes that they become.

Every text is one line: what was seen, where, what was expected, what to do.
"""

from __future__ import annotations

import os

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_TELL = 3
"""Of a comparison alone: the runs are too few, or scatter too much, for a gate."""

BEFORE = "interrupted before the run began: nothing is proven"
"""What a signal is answered with as long as there is nothing to clean up."""


class HarnessError(Exception):
    """Base of all errors that end a run."""

    exit_code = EXIT_FAILED


class UsageError(HarnessError):
    """The user asked for something impossible; known before any traffic."""

    exit_code = EXIT_USAGE


class FatalError(HarnessError):
    """The run cannot go on: server unreachable, no memory, wrong release, mode not served."""


class ServerGoneError(FatalError):
    """The server no longer answers: nothing that is open there can be ended."""


class ServerSilentError(FatalError):
    """The server does not answer now, and may again: it may have been stopped."""


class ServerLostError(FatalError):
    """A connection was lost: the server may be another one by now, which knows nothing of us."""


RESTARTS = (ServerGoneError, ServerSilentError, ServerLostError)
"""What a run survives that may wait for its server to come back."""


class WorkCancelledError(Exception):
    """A worker thread was asked to stop before it was done."""


def os_reason(error: OSError) -> str:
    """Return why the system refused, in its own words, or what the error says of itself."""
    # Loaded here: this module is loaded before signals are handled.
    import socket

    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror  # its numbers are not those of the system
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return one_line(error) or type(error).__name__


_SPACED = 16
"""How much of a text is looked at, which may be mostly space: so many times of what is shown."""


def one_line(text: object, limit: int = 400) -> str:
    """Return a text of any origin as one printable line of at most `limit` characters."""
    flat = " ".join(str(text)[: _SPACED * limit].split())
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)
    return printable if len(printable) <= limit else printable[: limit - 3] + "..."
