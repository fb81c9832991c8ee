"""Replies: nothing came that was not the one answer to a waiting call.

A reply that is late is the server's fault only if it answered something else while it owed that
one.  A server that answered nothing at all may have been stopped, and proves nothing.
"""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed, unproven
from protocol.messages import (
    NO_UID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    UnknownReply,
)

REPLIES = Check("replies", "no late, duplicate, unknown or malformed reply, no lost connection")

_MEANWHILE_NS = 50_000_000
"""Answers that come so soon after each other may all have waited for the server to go on."""


def judge_event(event: Event, place: str, *, now_ns: int, alive_ns: int) -> Finding:
    """Return the finding that a stray reply is; `alive_ns`: when the server last proved alive."""
    text = f"{place}: {_text(event)}"
    if isinstance(event, LateReply):
        given_up_ns = now_ns - event.late_ns
        if not given_up_ns <= alive_ns <= now_ns - _MEANWHILE_NS:
            return unproven(
                REPLIES,
                f"{text}, and nothing else was answered meanwhile: the server stood still",
            )
    return failed(REPLIES, text)


def _text(event: Event) -> str:
    if isinstance(event, LateReply):
        return (
            f"late reply: {event.op.name} (uid {event.uid}) was answered "
            f"{event.late_ns / 1e6:.1f} ms after it had been given up"
        )
    if isinstance(event, DuplicateReply):
        return f"duplicate reply to {event.op.name} (uid {event.uid})"
    if isinstance(event, UnknownReply):
        return f"unknown reply: uid {event.uid} was never sent on this connection"
    if isinstance(event, MalformedReply):
        whose = "" if event.uid == NO_UID else f" to uid {event.uid}"
        return f"malformed reply{whose}: {event.reason}"
    return f"unexpected event {type(event).__name__}"
