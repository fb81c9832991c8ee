"""The error that a handler raises for a request that gets no reply."""

from __future__ import annotations


class RefusalError(Exception):
    """The request is refused: one line in the journal, and silence on the wire."""
