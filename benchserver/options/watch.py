"""What is watched of a run while it goes on: options of every scenario."""

from __future__ import annotations

from benchserver.options.kinds import Text
from benchserver.options.option import Option, Replayed, Table

WATCH = Table(
    "Long runs",
    shared=True,
    options=(
        Option(
            name="--growth-bound",
            field="growth_bounds",
            kind=Text("BOUNDS"),
            default="",
            default_text="8 MB an hour of memory, 2 an hour of what is counted",
            help="What may be added an hour: 'server memory=20MB/h, our descriptors=5/h'; more, "
            "beyond doubt, fails the run.",
            replay=Replayed(place=43),
        ),
    ),
)
