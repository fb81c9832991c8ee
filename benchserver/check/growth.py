"""Growth: nothing that the run holds, or its server, becomes more and more."""

from __future__ import annotations

from collections.abc import Iterable

from benchserver.check.verdict import Check, Finding, failed, passed, unproven

GROWTH = Check("growth", "memory, descriptors, threads, sessions and locks do not grow, on no side")

_REMEDY = "see docs/soak.md; --growth-bound allows more"


def judge_growth(
    *, grown: Iterable[str], flat: int, untold: str, unseen: str, owed: bool
) -> list[Finding]:
    """Return the findings on all resources of a run.

    `grown` says of each that does by how much; `flat` do not; `untold` and `unseen` say why nothing
    is known of the others, "" if there are none.  `owed`: a run that cannot tell has not proven
    enough.  Else nothing is found, and the run is not judged by it.
    """
    if found := [failed(GROWTH, f"{text}; {_REMEDY}") for text in grown]:
        return found
    if owed and (untold or not flat):
        return [unproven(GROWTH, untold or unseen)]
    return [passed(GROWTH)] if flat else []
