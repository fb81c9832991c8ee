"""The options of `bench-server sweep`."""

from __future__ import annotations

from benchserver.options.kinds import Number, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table
from benchserver.options.target import MAX_SECONDS
from benchserver.sweep.matrix import MOST_REPETITIONS

_RESUMED = NotReplayed("a sweep is resumed by its own command line")

SWEEP = (
    Table(
        "Sweep",
        options=(
            Option(
                name="--server-cmd",
                kind=Text("COMMAND"),
                default_text="that of the matrix",
                help="Start a server for each run: 'lmcache server --port {rpc_port} --http-port "
                "{http_port}', or 'serve' for the embedded one; no shell reads it.",
                replay=_RESUMED,
            ),
            Option(
                name="--repetitions",
                kind=Whole(1, MOST_REPETITIONS),
                default_text="that of the matrix, or 1",
                help="Run each cell so often, in shuffled order.",
                replay=_RESUMED,
            ),
            Option(
                name="--slo",
                kind=Texts("CONDITION"),
                help="Search the highest rate of each cell that keeps this, such as "
                "'retrieve.p99<50ms and hit_ratio>=0.5'; may be given several times.",
                replay=_RESUMED,
            ),
            Option(
                name="--max-rate",
                kind=Number(0.05, 1e6, "R"),
                default=10_000.0,
                help="Search no further than so many requests a second.",
                replay=_RESUMED,
            ),
            Option(
                name="--seed",
                kind=Whole(0, 2**63 - 1),
                default=0,
                help="Seed of the order, and of the loads' own seeds.",
                replay=_RESUMED,
            ),
            Option(
                name="--ready-within",
                kind=Number(0.1, MAX_SECONDS),
                default=180.0,
                help="Seconds within which a server must be ready.",
                replay=_RESUMED,
            ),
            Option(
                name="--cell-timeout",
                kind=Number(1.0, MAX_SECONDS),
                default_text="60 s beyond what is asked, or 660 s if that does not say",
                help="Seconds that a load may take.",
                replay=_RESUMED,
            ),
            Option(
                name="--out",
                kind=Text("DIR"),
                default_text="the matrix file's name, with .sweep",
                help="Directory of records, logs and tables; what is recorded there is not run "
                "again.",
                replay=_RESUMED,
            ),
        ),
    ),
)
