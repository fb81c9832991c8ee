"""What is watched of a run while it goes on: options of every scenario."""

from __future__ import annotations

from benchserver.options.kinds import Flag, Number, Port, Text, Whole
from benchserver.options.option import NotReplayed, Option, Replayed, Table
from benchserver.options.target import MAX_SECONDS

_OUTPUT = NotReplayed("only what is written depends on them")
_LOOKED_AT = NotReplayed("it is looked at, and goes on as it would")

WATCH = Table(
    "Long runs",
    shared=True,
    options=(
        Option(
            name="--growth-bound",
            field="growth_bounds",
            kind=Text("BOUNDS"),
            default="",
            default_text="8 MB an hour of memory, 6 an hour of what is counted",
            help="What may be added an hour: 'server memory=20MB/h, our descriptors=5/h'; more, "
            "beyond doubt, fails the run.",
            replay=Replayed(place=43),
        ),
        Option(
            name="--growth-every",
            field="growth_every_s",
            kind=Number(0.02, 3600.0),
            default=5.0,
            help="Look at what is held so often; 30 looks are the least that can be judged.",
            replay=Replayed(place=43),
        ),
        Option(
            name="--interval-log",
            kind=Text("PATH"),
            help="Add a line of JSON to a file now and then: counts, rates, percentiles, what is "
            "held.",
            replay=_OUTPUT,
        ),
        Option(
            name="--interval-log-every",
            kind=Number(0.1, MAX_SECONDS),
            default=60.0,
            help="How often.",
            needs=("--interval-log", "the file"),
            replay=_OUTPUT,
        ),
        Option(
            name="--metrics-port",
            kind=Port(),
            default_text="none",
            help="Serve metrics of the run for Prometheus at /metrics of this port; 0: a free one, "
            "which is printed.",
            replay=_LOOKED_AT,
        ),
        Option(
            name="--metrics-host",
            kind=Text("HOST"),
            default="127.0.0.1",
            help="Where --metrics-port listens; 0.0.0.0 lets other hosts read.",
            needs=("--metrics-port", "which serves them"),
            replay=_LOOKED_AT,
        ),
        Option(
            name="--max-failures",
            field="max_failures",
            kind=Whole(1, 1 << 40),
            default_text="no bound",
            help="End the run early after so many units of work that failed.",
            replay=Replayed(place=44),
        ),
        Option(
            name="--keep-going",
            field="keep_going",
            kind=Flag(),
            default=False,
            help="Do not end early for failures, whatever a file, a variable or the command's "
            "default says of --max-failures.",
            replay=Replayed(place=45),
        ),
        Option(
            name="--reconnect",
            field="reconnect",
            kind=Flag(),
            default=False,
            help="If the server is lost, wait for it, register again and go on; without it that is "
            "a failure.",
            replay=Replayed(place=46),
        ),
        Option(
            name="--reconnect-within",
            field="reconnect_within_s",
            kind=Number(1.0, MAX_SECONDS),
            default=60.0,
            help="Seconds that a lost server may take to come back.",
            needs=("--reconnect", "which waits for it"),
            replay=Replayed(place=47),
        ),
        Option(
            name="--stall-after",
            field="stall_after_s",
            kind=Number(1.0, MAX_SECONDS),
            default_text="300, or twice --timeout if that is more",
            help="Seconds without any answer or result after which the run fails, and says which "
            "side is silent.",
            replay=Replayed(place=48),
        ),
    ),
)
