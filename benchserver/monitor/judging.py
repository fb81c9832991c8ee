"""What growth means for a run: findings, and its part of the reports."""

from __future__ import annotations

from collections.abc import Sequence

from benchserver.check.growth import GROWTH, judge_growth
from benchserver.check.verdict import Ledger
from benchserver.line import BAD, FAINT, PLAIN, Line
from benchserver.monitor.resources import Resources
from benchserver.monitor.snapshot import ResourceNow
from benchserver.section import Section


def judge_resources(resources: Sequence[ResourceNow], ledger: Ledger, *, owed: bool) -> None:
    """Enter what is known of all resources; `owed`: a run that cannot tell has not proven enough.

    What is not known is left out by name, with the reason.
    """
    untold = [one for one in resources if one.verdict == "cannot tell yet"]
    unseen = [one for one in resources if one.verdict == "not measured"]
    found = judge_growth(
        grown=[one.reason for one in resources if one.verdict == "grows"],
        flat=sum(one.verdict == "flat" for one in resources),
        untold=_reasons(untold, len(resources)),
        unseen=_reasons(unseen, len(resources)),
        owed=owed,
    )
    ledger.add(found)
    if untold or unseen:
        ledger.skip(GROWTH, _reasons([*untold, *unseen], len(resources)))


def _reasons(resources: Sequence[ResourceNow], of: int) -> str:
    """Return why nothing can be said of some of so many, by reason: `a, b: too short`."""
    named: dict[str, list[str]] = {}
    for one in resources:
        named.setdefault(one.reason, []).append(one.name)
    return "; ".join(
        reason if len(names) == of or names[0] in reason else f"{', '.join(names)}: {reason}"
        for reason, names in named.items()
    )


def growth_section(resources: Resources) -> Section:
    """Return the part of the reports: a line for each resource that has a slope."""
    samples, known = resources.samples(), resources.now()
    return Section(
        key="growth",
        title="Growth an hour, with 99 % confidence",
        lines=tuple(_line(one) for one in known if one.slope_per_hour is not None),
        document={
            "resources": [
                {
                    "name": one.name,
                    "side": one.side,
                    "unit": one.unit,
                    "samples": [[round(at_s, 3), value] for at_s, value in samples[one.name]],
                    "slope_per_hour": one.slope_per_hour,
                    "low_per_hour": one.low_per_hour,
                    "high_per_hour": one.high_per_hour,
                    "bound_per_hour": one.bound_per_hour,
                    "verdict": one.verdict,
                    "reason": one.reason,
                }
                for one in known
            ]
        },
    )


def _line(one: ResourceNow) -> Line:
    style = {"grows": BAD, "flat": PLAIN}.get(one.verdict, FAINT)
    return Line(f"{one.verdict:<16}{one.reason}", style)
