"""The options of a ping: how often, and how fast."""

from __future__ import annotations

from benchserver.options.kinds import Number, Whole
from benchserver.options.option import Option, Replayed, Table
from benchserver.options.output import OUTPUT
from benchserver.options.target import MAX_SECONDS, TARGET
from benchserver.options.watch import WATCH

PING = Table(
    "Rounds",
    options=(
        Option(
            name="--count",
            field="count",
            kind=Whole(1, 1 << 40),
            default_text="run until Ctrl-C",
            help="Rounds: a GET_CHUNK_SIZE and a PING each.",
            replay=Replayed(),
        ),
        Option(
            name="--interval",
            field="interval_s",
            kind=Number(0.0, MAX_SECONDS),
            default=1.0,
            help="Seconds between one round's end and the next one's start.",
            replay=Replayed(),
        ),
    ),
)

TABLES = (TARGET, PING, WATCH, OUTPUT)
"""Those of `bench-server ping`."""
