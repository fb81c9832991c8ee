"""What reports say of dropped chunks, in every scenario that stores: a count and a share."""

from __future__ import annotations

from benchserver.check.dropped import DroppedAccount
from benchserver.line import BAD, PLAIN, Line
from benchserver.section import Section


def dropped_section(account: DroppedAccount) -> Section:
    """Return the section on an account."""
    text = f"{account.stored} chunks, how many were dropped is unknown: no counters"
    if account.known:
        text = (
            f"{account.stored} chunks, {account.dropped} dropped ({account.share:.1%}) by the "
            "server's own counters"
        )
    return Section(
        key="dropped",
        title="Stored",
        lines=(Line(text, BAD if account.dropped else PLAIN),),
        document={
            "known": account.known,
            "chunks": account.dropped,
            "stored_chunks": account.stored,
            "share": account.share,
        },
    )
