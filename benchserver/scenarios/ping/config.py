"""What a ping is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class PingConfig:
    """`count` rounds, None: until Ctrl-C; `interval_s` between one round's end and the next."""

    count: int | None
    interval_s: float

    lasts_s: ClassVar[float | None] = None
    clients: ClassVar[int] = 1
    in_flight: ClassVar[int] = 1

    @property
    def units(self) -> int | None:
        """Return how many rounds there will be; None: until somebody stops them."""
        return self.count

    def check(self) -> None:
        """Find nothing wrong: its bounds are all there is to say."""
