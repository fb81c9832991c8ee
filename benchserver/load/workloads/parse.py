"""`--workload` to what was asked for: the names of all workloads, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchserver.errors import UsageError, one_line
from benchserver.load.workloads.sharedprefix import AskedSharedPrefix
from benchserver.load.workloads.unique import AskedUnique
from benchserver.load.workloads.workload import Asked

_KINDS: Mapping[str, Callable[[str], Asked]] = {
    "unique": AskedUnique.parse,
    "shared-prefix": AskedSharedPrefix.parse,
}

NAMES = tuple(_KINDS)
"""Of all workloads, as they stand before the colon."""


def parse_workload(text: str) -> Asked:
    """Return the workload that a text asks for; UsageError, in one line, if there is none."""
    name, _, _ = text.partition(":")
    kind = _KINDS.get(name)
    if kind is None:
        raise UsageError(
            f"--workload {one_line(text, 80) or 'is empty'}: not a workload, expected one of "
            f"{', '.join(NAMES)}"
        )
    return kind(text)
