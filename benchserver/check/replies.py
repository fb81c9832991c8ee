"""Replies: nothing came that was not the one answer to a waiting call."""

from __future__ import annotations

from benchserver.check.verdict import Check, Finding, failed
from protocol.messages import (
    NO_UID,
    DuplicateReply,
    Event,
    LateReply,
    MalformedReply,
    UnknownReply,
)


def judge_event(event: Event, rank: int) -> Finding:
    """Return the failure that a stray reply is."""
    return failed(Check.REPLIES, f"rank={rank}: {_text(event)}")


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
