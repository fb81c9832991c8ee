"""What a ping is asked to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PingConfig:
    """`count` rounds, None: until Ctrl-C; `interval_s` between one round's end and the next."""

    count: int | None
    interval_s: float
