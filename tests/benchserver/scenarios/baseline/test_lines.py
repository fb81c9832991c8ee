"""Steps of the baseline as lines: word for word, and in the right style."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.history import (
    DigestRecord,
    EndRecord,
    EvidenceRecord,
    LookupRecord,
    Outcome,
    Step,
    TransferRecord,
)
from benchserver.kv.evidence import ABSENT
from benchserver.line import BAD, PLAIN, Line
from benchserver.scenarios.baseline.lines import WORDING, describe
from benchserver.scenarios.baseline.plan import Pass


def lookup(**changes: Any) -> LookupRecord:
    fields: dict[str, Any] = {
        "which": Pass.COLD,
        "outcome": Outcome.OK,
        "hits": 0,
        "expected": 0,
        "total": 2,
        "began_ns": 0,
        "ended_ns": 3_894_000,
    }
    return LookupRecord(**{**fields, **changes})


def transfer(**changes: Any) -> TransferRecord:
    fields: dict[str, Any] = {
        "name": "STORE",
        "rank": 0,
        "outcome": Outcome.OK,
        "chunks": 2,
        "total": 2,
        "nbytes": 1,
        "began_ns": 0,
        "ended_ns": 63_712_000,
        "replied_ns": 63_712_000,
    }
    return TransferRecord(**{**fields, **changes})


@pytest.mark.parametrize(
    ("step", "text", "style"),
    [
        (lookup(), "[seq=0] LOOKUP cold:  0/2 chunks hit (3.89 ms)", PLAIN),
        (
            lookup(which=Pass.WARM, hits=2, expected=2, ended_ns=2_730_000),
            "[seq=0] LOOKUP warm:  2/2 chunks hit (2.73 ms)",
            PLAIN,
        ),
        (
            lookup(which=Pass.WARM, hits=2, expected=2, attempts=4, stored_ns=-8_446_000),
            "[seq=0] LOOKUP warm:  2/2 chunks hit (3.89 ms), visible after 12.3 ms and 4 lookups",
            PLAIN,
        ),
        (lookup(hits=1), "[seq=0] LOOKUP cold:  1/2 chunks hit (3.89 ms)", BAD),
        (
            lookup(outcome=Outcome.UNKNOWN, reason="LOOKUP: no answer within 10 s"),
            "[seq=0] LOOKUP cold:  LOOKUP: no answer within 10 s",
            BAD,
        ),
        (transfer(), "[seq=0] STORE:        2 chunks stored (63.71 ms)", PLAIN),
        (transfer(rank=3), "[seq=0] STORE:        2 chunks stored (63.71 ms) (rank 3)", PLAIN),
        (
            transfer(name="RETRIEVE", ended_ns=53_150_000),
            "[seq=0] RETRIEVE:     2 chunks retrieved (53.15 ms)",
            PLAIN,
        ),
        (
            lookup(which=Pass.PARTIAL, hits=2, expected=2, ended_ns=2_730_000),
            "[seq=0] LOOKUP again: 2/2 chunks hit (2.73 ms)",
            PLAIN,
        ),
        (
            transfer(name="RETRIEVE", ended_ns=53_150_000, skip_tokens=40, rank=1),
            "[seq=0] RETRIEVE:     2 chunks retrieved, without the first 40 tokens (53.15 ms) "
            "(rank 1)",
            PLAIN,
        ),
        (
            transfer(name="RETRIEVE", rank=1, outcome=Outcome.FAIL, reason="answered False"),
            "[seq=0] RETRIEVE:     answered False (rank 1)",
            BAD,
        ),
        (
            EndRecord(
                name="END_SESSION",
                request_id="r",
                outcome=Outcome.UNKNOWN,
                began_ns=0,
                ended_ns=1,
                reason="no answer",
            ),
            "[seq=0] END_SESSION: no answer",
            BAD,
        ),
    ],
)
def test_lines_of_steps(step: Step, text: str, style: str) -> None:
    assert describe("seq=0", step) == Line(text, style)


@pytest.mark.parametrize(
    "step",
    [
        EndRecord(name="END_SESSION", request_id="r", outcome=Outcome.OK, began_ns=0, ended_ns=1),
        EvidenceRecord(rank=0, content=ABSENT, canaries=ABSENT),
        DigestRecord(rank=0, leg="source", outcome=Outcome.OK, ours=(), server=()),
    ],
)
def test_steps_without_a_line(step: Step) -> None:
    assert describe("seq=0", step) is None


def test_every_kind_of_lookup_has_a_line() -> None:
    heads = {describe("seq=0", lookup(which=which)) for which in Pass}
    assert len(heads) == len(Pass)


def test_how_the_baseline_reads() -> None:
    assert (WORDING.proven, WORDING.units) == ("CHECKSUM MATCH OK", "Sequences")
    assert WORDING.describe("seq=0", lookup()) == describe("seq=0", lookup())
