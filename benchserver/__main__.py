"""Entry point: `python -m benchserver` and the `bench-server` command."""

from __future__ import annotations

import os

from benchserver.ending import Ending


def main() -> None:
    """Run the command line; a signal during the imports ends the process in one line."""
    ending = Ending()
    ending.install()
    # numpy's BLAS would start a thread for each core, and take address space for it; it has
    # nothing to do here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from benchserver.cli.main import cli

    cli(prog_name="bench-server", obj=ending)


if __name__ == "__main__":
    main()
