"""Entry point: `python -m benchserver` and the `bench-server` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line; imports nothing else before it."""
    from benchserver.cli.main import cli

    cli(prog_name="bench-server")


if __name__ == "__main__":
    main()
