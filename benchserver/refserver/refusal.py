"""The error that a handler raises for a request that gets no reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RefusalError(Exception):
    """The request is refused: one line in the journal, and silence on the wire."""


@contextmanager
def refused_registration(name: str, instance_id: object) -> Iterator[None]:
    """Let a refusal say whose registration it is, and that its client, an engine, waits long."""
    try:
        yield
    except RefusalError as error:
        raise RefusalError(
            f"{name} of instance {instance_id}: {error}; no answer is sent, so the client waits "
            "until its own timeout"
        ) from error
