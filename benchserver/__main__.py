"""Entry point: `python -m benchserver` and the `bench-server` command.

Imports as little as it can before signals are handled: until then Ctrl-C is a traceback.
"""

from __future__ import annotations

import io
import os
import signal
import sys

from benchserver.errors import BEFORE, EXIT_FAILED

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command line; a signal during the imports ends the process in one line."""
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    from benchserver import inquiry
    from benchserver.ending import Ending

    ending = Ending()
    ending.install()
    inquiry.install()
    # numpy's BLAS would start a thread for each core, and take address space for it; it has
    # nothing to do here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from benchserver.cli.main import cli

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None, if it was closed before we were started
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="bench-server", obj=ending)


def _leave(*_: object) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # the line may block, on a terminal that is stopped
    try:
        os.write(2, f"bench-server: error: {BEFORE}\n".encode())
    finally:
        os._exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
