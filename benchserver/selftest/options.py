"""The options of `bench-server selftest`."""

from __future__ import annotations

from typing import get_args

from benchserver.options.engine import Mode
from benchserver.options.kinds import Choice, Flag, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table

_FIXED = NotReplayed("the runs of a self-test are fixed")

SELFTEST = (
    Table(
        "Runs",
        options=(
            Option(
                name="--only",
                kind=Texts("NAME"),
                default_text="all",
                help="Only the runs of this fault; may be given several times.",
                replay=_FIXED,
            ),
            Option(
                name="--jobs",
                kind=Whole(1, 64),
                default=2,
                help="Runs at once, each of a server and a bench.",
                replay=_FIXED,
            ),
            Option(
                name="--mode",
                kind=Choice(get_args(Mode)),
                default="cpu",
                help="Where the bench's KV pools lie.",
                replay=_FIXED,
            ),
            Option(
                name="--json",
                kind=Text("PATH"),
                help="Write a JSON report; -: to standard output, and the table to standard error.",
                replay=_FIXED,
            ),
            Option(
                name="--list",
                kind=Flag(),
                help="List the runs and exit.",
                replay=_FIXED,
            ),
        ),
    ),
)
