"""Entry point: `python -m benchserver` and the `bench-server` command."""

from __future__ import annotations

from benchserver.ending import Ending


def main() -> None:
    """Run the command line; a signal during the imports ends the process in one line."""
    ending = Ending()
    ending.install()
    from benchserver.cli.main import cli

    cli(prog_name="bench-server", obj=ending)


if __name__ == "__main__":
    main()
