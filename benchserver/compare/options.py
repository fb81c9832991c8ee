"""The options of `bench-server compare`."""

from __future__ import annotations

from benchserver.options.kinds import Choice, Flag, Text, Texts, Whole
from benchserver.options.option import NotReplayed, Option, Table

_PURE = NotReplayed("the same reports give the same answer")

REFUSE, LEAVE_OUT, USE = "refuse", "leave-out", "use"

COMPARE = (
    Table(
        "Comparison",
        options=(
            Option(
                name="--fail-if",
                kind=Texts("GATE"),
                help="Exit 1 if the interval of a change lies beyond a bound, such as "
                "'retrieve.p99 > +10%', and 3 if nobody can tell; may be given several times.",
                replay=_PURE,
            ),
            Option(
                name="--figure",
                kind=Texts("PATTERN"),
                help="Look at these figures only, such as 'retrieve.*': what is looked at beside "
                "others is judged more carefully; may be given several times.",
                replay=_PURE,
            ),
            Option(
                name="--allow",
                kind=Texts("KEY"),
                help="Compare runs that differ in this, such as config.num_tokens or machine; may "
                "be given several times.",
                replay=_PURE,
            ),
            Option(
                name="--force",
                kind=Flag(),
                help="Compare runs whatever they differ in; cells of one side alone are left out.",
                replay=_PURE,
            ),
            Option(
                name="--not-valid",
                kind=Choice((REFUSE, LEAVE_OUT, USE)),
                default=REFUSE,
                help="What to do with runs whose figures are no evidence: not proven, interrupted, "
                "not valid as a measurement.",
                replay=_PURE,
            ),
            Option(
                name="--seed",
                kind=Whole(0, 2**32 - 1),
                default=0,
                help="Seed of the bootstrap.",
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
                name="--html",
                kind=Text("PATH"),
                help="Write a page with both sides in each chart; needs matplotlib.",
                replay=_PURE,
            ),
        ),
    ),
)
