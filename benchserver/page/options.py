"""The options of `bench-server report`."""

from __future__ import annotations

from benchserver.options.kinds import Text
from benchserver.options.option import NotReplayed, Option, Table

REPORT = (
    Table(
        "Output",
        options=(
            Option(
                name="--html",
                kind=Text("PATH"),
                default_text="the report's name, with .html",
                help="Write the page there; -: to standard output.",
                replay=NotReplayed("the same report gives the same page"),
            ),
        ),
    ),
)
