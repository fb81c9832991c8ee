"""Digests: the server, asked over HTTP, sees the same bytes in our blocks as we do."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, not_looked_at, passed, unproven
from benchserver.history import DigestRecord, Outcome, SequenceRecord

DIGESTS = Check("digests", "the server's digests equal ours, source and destination")

_LEG_MEANING = {
    "source": "the server reads other bytes than we wrote",
    "destination": "the server sees other bytes than it should have restored",
}


def digests(record: SequenceRecord) -> list[Finding]:
    """Every digest of every rank, source and destination, equals ours."""
    if not record.cross_check:
        return []
    steps = {(step.rank, step.leg): step for step in record.steps if isinstance(step, DigestRecord)}
    sources = () if record.expect_warm or record.overwritten else record.writers
    wanted = [(rank, "source") for rank in sources]
    wanted += [(rank, "destination") for rank in record.readers]
    return [on_leg(record.label, rank, leg, steps.get((rank, leg))) for rank, leg in wanted]


def on_leg(label: str, rank: int, leg: str, step: DigestRecord | None) -> Finding:
    """Return what is found of one leg of a unit of work; None: nobody took its digests."""
    place = f"{label} rank={rank}"
    if step is None:
        return not_looked_at(DIGESTS, f"{place}: no digests of the {leg} blocks were taken")
    if step.outcome is not Outcome.OK:
        return unproven(DIGESTS, f"{place}: digests of the {leg} blocks: {step.reason}")
    if len(step.server) != len(step.ours):
        count = f"{len(step.server)} digests came, {len(step.ours)} were asked for"
        return failed(DIGESTS, f"{place}: leg {leg}: {count}")
    for chunk, (ours, server) in enumerate(zip(step.ours, step.server, strict=True)):
        if ours != server:
            return failed(
                DIGESTS,
                f"{place}: CHECKSUM MISMATCH, leg {leg}, chunk {chunk}: ours {ours}, "
                f"the server's {server}: {_LEG_MEANING[leg]}, or its digest API is wrong",
            )
    return passed(DIGESTS)
