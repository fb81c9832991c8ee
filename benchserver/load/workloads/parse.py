"""`--workload` to what was asked for: the names of all workloads, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchserver.errors import UsageError, one_line
from benchserver.load.workloads.chat import AskedChat
from benchserver.load.workloads.churn import AskedChurn
from benchserver.load.workloads.prefixtree import AskedPrefixTree
from benchserver.load.workloads.sharedprefix import AskedSharedPrefix
from benchserver.load.workloads.trace import Trace
from benchserver.load.workloads.unique import AskedUnique
from benchserver.load.workloads.workload import Asked

_KINDS: Mapping[str, Callable[[str], Asked]] = {
    "unique": AskedUnique.parse,
    "shared-prefix": AskedSharedPrefix.parse,
    "prefix-tree": AskedPrefixTree.parse,
    "chat": AskedChat.parse,
    "churn": AskedChurn.parse,
}

_TRACE = "trace"

NAMES = (*_KINDS, _TRACE)
"""Of all workloads, as they stand before the colon."""


def parse_workload(
    text: str, *, speedup: float | None = None, max_input_tokens: int | None = None
) -> Asked:
    """Return the workload that a text asks for; UsageError, in one line, if there is none.

    A trace is read to its end, and may be sped up and its requests cut; None: nobody asked for it.
    """
    name, colon, rest = text.partition(":")
    if name == _TRACE and colon:
        return Trace.read(rest, speedup=speedup, limit=max_input_tokens)
    kind = _KINDS.get(name)
    if kind is None:
        forms = ", ".join(f"{name}:FILE" if name == _TRACE else name for name in NAMES)
        raise UsageError(
            f"--workload {one_line(text, 80) or 'is empty'}: not a workload, expected one of "
            f"{forms}"
        )
    for option, value in (("--speedup", speedup), ("--max-input-tokens", max_input_tokens)):
        if value is not None:
            raise UsageError(f"{option} is for --workload trace:FILE, not for {name}")
    return kind(text)
