"""What a run prints and writes, and where options come from: options of every scenario."""

from __future__ import annotations

from benchserver.options.kinds import Action, Flag, Text
from benchserver.options.option import NotReplayed, Option, Table

_OUTPUT = NotReplayed("only what is written depends on them")

OUTPUT = Table(
    "Output",
    shared=True,
    options=(
        Option(
            name="--json",
            kind=Text("PATH"),
            help="Write a JSON report; -: to standard output, and the lines to standard error.",
            replay=_OUTPUT,
        ),
        Option(
            name="--junit",
            kind=Text("PATH"),
            help="Write a JUnit XML report, one case for each check; - as above.",
            replay=_OUTPUT,
        ),
        Option(
            name="--html",
            kind=Text("PATH"),
            help="Write a page for people, one file with all charts; needs bench-server[report].",
            replay=_OUTPUT,
        ),
        Option(
            name="--summary",
            kind=Text("PATH"),
            help="Append a summary in markdown, for $GITHUB_STEP_SUMMARY.",
            replay=_OUTPUT,
        ),
        Option(
            name="--hdr",
            kind=Text("PATH"),
            help="Write the histograms of all series as an HdrHistogram log, for its tools.",
            replay=_OUTPUT,
        ),
        Option(
            name="--quiet",
            kind=Flag(),
            help="Print failures and the result only.",
            replay=_OUTPUT,
        ),
    ),
)

OTHER = Table(
    "Other",
    options=(
        Option(
            name="--config",
            kind=Text("FILE"),
            help="TOML file with defaults for all options.",
            replay=NotReplayed("the line has the values of the file"),
        ),
        Option(
            name="--version",
            kind=Action(),
            help="Print the version.",
            replay=NotReplayed("it starts no run"),
        ),
    ),
)
