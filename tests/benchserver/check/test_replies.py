"""Stray replies are failures, in words that say what came."""

from __future__ import annotations

import pytest

from benchserver.check.replies import judge_event
from benchserver.check.verdict import Check, failed
from protocol.messages import (
    NO_UID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    Reply,
    UnknownReply,
)
from protocol.ops import Op


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            LateReply(uid=4, op=Op.STORE, late_ns=1_250_000),
            "late reply: STORE (uid 4) was answered 1.2 ms after it had been given up",
        ),
        (DuplicateReply(uid=5, op=Op.PING), "duplicate reply to PING (uid 5)"),
        (UnknownReply(uid=6), "unknown reply: uid 6 was never sent on this connection"),
        (
            MalformedReply(uid=7, reason="store: the reply lacks its result"),
            "malformed reply to uid 7: store: the reply lacks its result",
        ),
        (MalformedReply(uid=NO_UID, reason="no uid"), "malformed reply: no uid"),
        (Reply(uid=8, op=Op.NOOP, result="OK", latency_ns=1), "unexpected event Reply"),
    ],
)
def test_stray_replies(event: Event, text: str) -> None:
    assert judge_event(event, 3) == failed(Check.REPLIES, f"rank=3: {text}")
