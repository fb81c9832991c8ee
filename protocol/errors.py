"""The three errors of this package: who broke the rules of the wire, we or they."""

from __future__ import annotations


class ProtocolError(Exception):
    """A rule of the MP wire protocol was broken."""


class LocalProtocolError(ProtocolError):
    """We were about to break the rules: nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules: its message is refused, and this says where."""
