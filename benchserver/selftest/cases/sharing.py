"""What several runs of the self-test share: options of their benches and servers, and words."""

from __future__ import annotations

from functools import partial

from benchserver.selftest.case import FOLDER, Case

TP2 = ("--tp-size", "2")
SHORT = ("--timeout", "1")
"""A deadline that makes faults of silence quick to find."""

ONE = (*SHORT, "--end", "1")
SOON = ("--visible-within", "0.2")
LOST_CHUNKS = ("never became visible",)
WARM = ("--expect-warm",)
HIT_NONE = ("cold LOOKUP hit 0/2 chunks, expected 2/2",)
FILES = ("--l2", f"fs://{FOLDER}/tier")
from_l2 = partial(
    Case,
    serve=("--l2", "mock://1/"),
    before=(),
    from_l2=True,
    options=WARM,
    note="L2",
)
"""A run that expects what one before it has stored, and that must come from L2."""
