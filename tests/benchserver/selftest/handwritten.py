"""Runs of the self-test written by hand: caught, harmless, and not caught."""

from __future__ import annotations

from typing import Any

from benchserver.selftest.case import Case
from benchserver.selftest.judge import Ended

HARMFUL = Case(switch="flip_byte:layer=1@2", checks=("content", "replies"), words=("layer 1",))
HARMLESS = Case(switch="delay")
STDOUT = """\
[seq=0] FAILED content: seq=0: layer 1 is wrong
content: seq=0: layer 1 is wrong
replies: late
RESULT: FAIL (exit 1)
"""


def report(*bad: str) -> dict[str, Any]:
    names = ("content", "replies", "residue")
    return {"checks": {n: {"verdict": "invalid" if n in bad else "valid"} for n in names}}


def ended(**changes: Any) -> Ended:
    fields: dict[str, Any] = {
        "exit_code": 1,
        "stdout": STDOUT,
        "report": report("content", "replies"),
        "fired": 2,
    }
    return Ended(**{**fields, **changes})


PASSED = ended(exit_code=0, stdout="RESULT: PASS, all\n", report=report())
