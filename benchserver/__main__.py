"""Entry point: `python -m benchserver` and the `bench-server` command."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line; a signal during the imports ends the process in one line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What nohup ignores stays ignored; a shell's background jobs can be interrupted.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    from benchserver.cli.main import cli

    cli(prog_name="bench-server")


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End at once: nothing has been named, registered or started that would outlive us."""
    os.write(2, b"bench-server: error: interrupted before the run began: nothing is proven\n")
    os._exit(1)


if __name__ == "__main__":
    main()
