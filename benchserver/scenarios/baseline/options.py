"""The options of the baseline: which sequences, and what is asked of each."""

from __future__ import annotations

from typing import get_args

from benchserver.load.partial import SkipUnit
from benchserver.options.engine import ENGINE
from benchserver.options.kinds import ByField, Choice, Flag, Number, Whole
from benchserver.options.option import Option, Replayed, Table
from benchserver.options.output import OTHER, OUTPUT
from benchserver.options.target import MAX_SECONDS, TARGET
from benchserver.options.watch import WATCH

MAX_SEQUENCES = 1 << 40
MAX_CONCURRENCY = 1024

BASELINE = Table(
    "Sequences",
    options=(
        Option(
            name="--start",
            field="start",
            kind=Whole(0, MAX_SEQUENCES),
            default=0,
            help="First sequence.",
            replay=Replayed(place=5, always=True),
        ),
        Option(
            name="--end",
            field="end",
            kind=Whole(0, MAX_SEQUENCES),
            default_text="run until Ctrl-C",
            help="Stop before this sequence.",
            replay=Replayed(place=30),
        ),
        Option(
            name="--duration",
            field="duration_s",
            kind=Number(0.1, MAX_SECONDS),
            default_text="as --end",
            help="Begin no sequence after so many seconds.",
            replay=Replayed(place=30),
        ),
        Option(
            name="--interval",
            field="interval_s",
            kind=Number(0.0, MAX_SECONDS),
            default=0.5,
            help="Seconds between one sequence's end and the next one's start on the same client; "
            "workers PING meanwhile.",
            replay=Replayed(place=31),
        ),
        Option(
            name="--concurrency",
            field="concurrency",
            kind=Whole(1, MAX_CONCURRENCY),
            default=1,
            help="Sequences under way at once, each on a client of its own: an engine with all its "
            "ranks, their pools and connections.",
            replay=Replayed(place=32),
        ),
        Option(
            name="--expect-warm",
            field="expect_warm",
            kind=Flag(),
            help="The cache must hold what an earlier run with this --seed stored.",
            needs=("--seed", "the seed that the earlier run printed"),
            replay=Replayed(place=40),
        ),
        Option(
            name="--partial-retrieve-every",
            field="partial_every",
            kind=Whole(0, MAX_SEQUENCES),
            default=10,
            help="In every Nth sequence, RETRIEVE again and skip the first tokens; 0: never.",
            replay=Replayed(place=41),
        ),
        # On GPUs whole chunks: where its compiled kernels do not load, a 0.5.6 server dies by a
        # segment fault at a RETRIEVE that begins inside a chunk (its torch kernels read GPU
        # memory on the host).
        Option(
            name="--partial-skip",
            field="partial_skip",
            kind=Choice(get_args(SkipUnit)),
            default=ByField("mode", {"cpu": "blocks", "gpu": "chunks"}),
            default_text="blocks; chunks in gpu mode",
            help="Skip any number of blocks, or whole chunks.",
            replay=Replayed(place=42),
        ),
        Option(
            name="--visible-within",
            field="visible_within_s",
            kind=Number(0.0, MAX_SECONDS),
            default=2.0,
            help="Seconds within which a store must be visible to LOOKUP.",
            replay=Replayed(place=33),
        ),
        Option(
            name="--max-dropped",
            field="max_dropped",
            kind=Number(0.0, 1.0, "SHARE"),
            default=0.0,
            help="The share of stored chunks that the server may drop, if its own counters account "
            "for them.",
            replay=Replayed(place=34),
        ),
    ),
)

TABLES = (TARGET, ENGINE, BASELINE, WATCH, OUTPUT, OTHER)
"""Those of `bench-server` without a command."""
