"""What reports say of dropped chunks."""

from __future__ import annotations

from benchserver.check.dropped import DroppedAccount
from benchserver.scenarios.dropped import dropped_section
from protocol.counters import Counters


def test_reports_have_the_count_and_the_share() -> None:
    account = DroppedAccount(Counters())
    account.stored = 8
    account.explain(2, Counters(dropped_chunks=2))
    section = dropped_section(account)
    assert section.document == {"known": True, "chunks": 2, "stored_chunks": 8, "share": 0.25}
    assert section.lines[0].text == "8 chunks, 2 dropped (25.0%) by the server's own counters"


def test_a_server_without_counters_is_not_said_to_have_dropped_nothing() -> None:
    section = dropped_section(DroppedAccount(None))
    assert section.document["known"] is False
    assert "unknown" in section.lines[0].text
