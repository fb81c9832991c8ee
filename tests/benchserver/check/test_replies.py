"""Stray replies are failures, in words that say what came."""

from __future__ import annotations

import pytest

from benchserver.check.replies import REPLIES, judge_event
from benchserver.check.verdict import failed, unproven
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

NS_PER_MS = 1_000_000
SECOND = 1000 * NS_PER_MS


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            LateReply(uid=4, op=Op.STORE, late_ns=601_250_000),
            "late reply: STORE (uid 4) was answered 601.2 ms after it had been given up",
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
    found = judge_event(event, "rank=3", now_ns=SECOND, alive_ns=SECOND // 2)
    assert found == failed(REPLIES, f"rank=3: {text}")


@pytest.mark.parametrize(
    ("alive_ns", "blamed"),
    [
        (-1, False),  # it was never asked
        (SECOND - 200 * NS_PER_MS - 1, False),  # before the reply was given up
        (SECOND - 200 * NS_PER_MS, True),
        (SECOND - 50 * NS_PER_MS, True),
        (SECOND - 50 * NS_PER_MS + 1, False),  # with the late one: it had stood still until then
        (SECOND, False),
    ],
)
def test_a_late_reply_is_blamed_on_a_server_that_answered_others_meanwhile(
    alive_ns: int, blamed: bool
) -> None:
    event = LateReply(uid=4, op=Op.STORE, late_ns=200 * NS_PER_MS)
    text = "rank=0: late reply: STORE (uid 4) was answered 200.0 ms after it had been given up"
    stood_still = f"{text}, and nothing else was answered meanwhile: the server stood still"
    expected = failed(REPLIES, text) if blamed else unproven(REPLIES, stood_still)
    assert judge_event(event, "rank=0", now_ns=SECOND, alive_ns=alive_ns) == expected
