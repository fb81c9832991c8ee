"""The options of `bench-server breakeven`."""

from __future__ import annotations

from benchserver.options.kinds import Number, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table

_PURE = NotReplayed("the same figures give the same answer")

NETWORKS = ("10Gbit/s", "25Gbit/s", "4GiB/s", "100Gbit/s", "200Gbit/s", "400Gbit/s")
"""Rows of the table, if none are asked for: what hosts have."""

BREAKEVEN = (
    Table(
        "Hit",
        options=(
            Option(
                name="--payload",
                kind=Text("SIZE"),
                default_text="the run's, of all ranks",
                help="KV bytes that a hit moves, such as 1GiB.",
                replay=_PURE,
            ),
            Option(
                name="--saved",
                kind=Text("TIME"),
                default_text="tokens / --prefill-tokens-per-s",
                help="Prefill time that a hit saves, such as 120ms.",
                replay=_PURE,
            ),
            Option(
                name="--tokens",
                kind=Whole(1, 1 << 40),
                default_text="the run's",
                help="Tokens whose prefill a hit saves.",
                replay=_PURE,
            ),
            Option(
                name="--prefill-tokens-per-s",
                kind=Number(1e-3, 1e12, what="N"),
                help="Tokens that the engine prefills in a second.",
                replay=_PURE,
            ),
            Option(
                name="--fixed",
                kind=Text("TIME"),
                default_text="the run's LOOKUP, p50",
                help="What a hit costs before a byte moves, such as 3ms.",
                replay=_PURE,
            ),
            Option(
                name="--device-bandwidth",
                kind=Text("RATE"),
                default_text="the run's RETRIEVE rate, of all ranks",
                help="From the engine's host to its devices, such as 24GiB/s.",
                replay=_PURE,
            ),
            Option(
                name="--network-bandwidth",
                kind=Texts("RATE"),
                default_text=", ".join(NETWORKS),
                help="From the cache to that host, a row each; may be given several times.",
                replay=_PURE,
            ),
            Option(
                name="--run",
                kind=Text("PATH"),
                help="The JSON report of a run of bench-server, in place of what is not given.",
                replay=_PURE,
            ),
        ),
    ),
    Table(
        "Output",
        options=(
            Option(
                name="--json",
                kind=Text("PATH"),
                help="Write a JSON report; -: to standard output, and the table to standard error.",
                replay=_PURE,
            ),
            Option(
                name="--plot",
                kind=Text("FILE.png|FILE.svg"),
                help="Draw both times over the network bandwidth; needs matplotlib.",
                replay=_PURE,
            ),
        ),
    ),
)
