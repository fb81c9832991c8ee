"""The options of a load: what is asked, by how many, how fast, for how long, and what is proven."""

from __future__ import annotations

from benchserver.load.tracefile import MAX_INPUT_TOKENS
from benchserver.load.workloads.trace import MAX_SPEEDUP, MIN_SPEEDUP
from benchserver.options.engine import ENGINE
from benchserver.options.kinds import Choice, Number, Text, Whole
from benchserver.options.option import Option, Replayed, Table
from benchserver.options.output import OUTPUT
from benchserver.options.target import MAX_SECONDS, TARGET
from benchserver.options.watch import WATCH

MAX_CLIENTS = 1024
MAX_CONCURRENCY = 1024
MAX_REQUESTS = 1 << 40

LOAD = Table(
    "Load",
    options=(
        Option(
            name="--workload",
            field="workload",
            kind=Text("WORKLOAD"),
            default="shared-prefix:50",
            help="What is asked: unique, shared-prefix:P (P per cent of the tokens in common), "
            "prefix-tree, chat, churn:X (X times L1) or trace:FILE.",
            replay=Replayed(place=5, always=True),
        ),
        Option(
            name="--clients",
            field="clients",
            kind=Whole(1, MAX_CLIENTS),
            default=1,
            help="Engines, each of --tp-size ranks with a pool and a connection a rank.",
            replay=Replayed(place=30),
        ),
        Option(
            name="--concurrency",
            field="concurrency",
            kind=Whole(1, MAX_CONCURRENCY),
            default=2,
            help="Requests that each client has under way at once; its pools have room for as many "
            "more, up to 4, that are filled or looked at meanwhile.",
            replay=Replayed(place=31),
        ),
        Option(
            name="--rate",
            field="rate",
            kind=Text("R|FROM:TO:STEP"),
            default_text="as fast as answers come; a trace: as its timestamps say",
            help="Requests a second, whatever the server does, or a ramp of them.",
            replay=Replayed(place=32),
        ),
        Option(
            name="--arrivals",
            field="arrivals",
            kind=Choice(("poisson", "constant")),
            default="poisson",
            help="With --rate: as independent users make requests, or at equal distances.",
            needs=("--rate", "which says how many requests arrive"),
            replay=Replayed(place=33),
        ),
        Option(
            name="--step-duration",
            field="step_duration_s",
            kind=Number(0.1, MAX_SECONDS),
            default=10.0,
            help="Seconds of each step of a ramp.",
            needs=("--rate", "the ramp FROM:TO:STEP"),
            replay=Replayed(place=34),
        ),
        Option(
            name="--speedup",
            field="speedup",
            kind=Number(MIN_SPEEDUP, MAX_SPEEDUP, "X"),
            default_text="1",
            help="With trace:FILE: its requests come so many times as fast.",
            replay=Replayed(place=34),
        ),
        Option(
            name="--max-input-tokens",
            field="max_input_tokens",
            kind=Whole(1, MAX_INPUT_TOKENS),
            default_text="all tokens",
            help="With trace:FILE: longer requests are cut to their first tokens.",
            replay=Replayed(place=34),
        ),
        Option(
            name="--duration",
            field="duration_s",
            kind=Number(0.1, MAX_SECONDS),
            default_text="run until Ctrl-C, or to the end of --requests, the workload or the ramp",
            help="Seconds in which requests are sent, behind the warm-up.",
            replay=Replayed(place=35),
        ),
        Option(
            name="--requests",
            field="requests",
            kind=Whole(1, MAX_REQUESTS),
            default_text="as --duration",
            help="Send so many requests, those of the warm-up among them.",
            replay=Replayed(place=36),
        ),
        Option(
            name="--warmup",
            field="warmup_s",
            kind=Number(0.0, MAX_SECONDS),
            default=0.0,
            help="Seconds at the beginning that are proven, and in no figure.",
            replay=Replayed(place=37),
        ),
        Option(
            name="--goal",
            field="goal",
            kind=Text("TERMS"),
            default_text="none",
            help="Count the requests that keep it: 'response<500ms and retrieve<50ms'; a term is "
            "about response, service, lookup, retrieve or store.",
            replay=Replayed(place=38),
        ),
        Option(
            name="--prefill-tokens-per-s",
            field="prefill_tokens_per_s",
            kind=Number(1.0, 1e12, "N"),
            default_text="no pause",
            help="Between RETRIEVE and STORE, wait as an engine does that computes so fast.",
            replay=Replayed(place=38),
        ),
        Option(
            name="--verify",
            field="verify",
            kind=Text("all|sample:P|off"),
            default="all",
            help="Look at every byte of all hits, of a share of them (0 to 1), or of none.",
            replay=Replayed(place=39),
        ),
        Option(
            name="--digests",
            field="digests",
            kind=Choice(("all", "off")),
            default="off",
            help="Of all hits that are looked at, compare the server's digests over HTTP with ours "
            "as well; it costs the server CPU.",
            replay=Replayed(place=39),
        ),
        Option(
            name="--visible-within",
            field="visible_within_s",
            kind=Number(0.0, MAX_SECONDS),
            default=2.0,
            help="Seconds within which a store must be visible to LOOKUP.",
            replay=Replayed(place=40),
        ),
        Option(
            name="--max-dropped",
            field="max_dropped",
            kind=Number(0.0, 1.0, "SHARE"),
            default_text="no bound",
            help="The share of stored chunks that the server may drop, if its own counters account "
            "for them.",
            replay=Replayed(place=41),
        ),
    ),
)

TABLES = (TARGET, ENGINE, LOAD, WATCH, OUTPUT)
"""Those of `bench-server load`."""
