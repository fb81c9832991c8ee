"""How long a hit takes, and at which network bandwidth it begins to pay.  Pure.

A hit moves its payload twice: over the network into the engine's host, and from there to the
device.  Before that come costs that no bandwidth changes: lookup, calls, launches.

    serial     fixed + payload / network + payload / device      one leg after the other
    pipelined  fixed + payload / min(network, device)            both at once, the ideal

A hit gains if it takes less time than the prefill that it saves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchserver.breakeven.quantities import ms_text

NO_NETWORK = math.inf
"""The bandwidth of a payload that is in the host already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One hit: what it moves, what it saves, what it costs before anything moves."""

    payload_bytes: float
    saved_s: float
    fixed_s: float
    device_bytes_per_s: float

    @property
    def device_s(self) -> float:
        """Return how long the leg to the device takes."""
        return self.payload_bytes / self.device_bytes_per_s

    @property
    def local(self) -> Row:
        """Return the times of a hit in the engine's own host: no network does better."""
        return self.over(NO_NETWORK)

    def over(self, network_bytes_per_s: float) -> Row:
        """Return the times over a network."""
        network_s = self.payload_bytes / network_bytes_per_s
        return Row(
            network_bytes_per_s=network_bytes_per_s,
            serial_s=self.fixed_s + network_s + self.device_s,
            pipelined_s=self.fixed_s + max(network_s, self.device_s),
            saved_s=self.saved_s,
        )

    def turns(self, *, pipelined: bool) -> Turn:
        """Return the network bandwidth from which on a hit gains, or why there is none."""
        if self.fixed_s >= self.saved_s:
            return Turn(why_never=f"the fixed cost alone is {ms_text(self.fixed_s)}")
        left_s = self.saved_s - self.fixed_s
        if self.device_s >= left_s:
            local = ms_text(self.local.serial_s)
            return Turn(why_never=f"the fixed cost and the leg to the device alone take {local}")
        return Turn(self.payload_bytes / (left_s if pipelined else left_s - self.device_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The times of one hit over one network, and what it saves."""

    network_bytes_per_s: float
    serial_s: float
    pipelined_s: float
    saved_s: float

    @property
    def serial_gain_s(self) -> float:
        """Return what is won; negative is lost."""
        return self.saved_s - self.serial_s

    @property
    def pipelined_gain_s(self) -> float:
        """Return what is won; negative is lost."""
        return self.saved_s - self.pipelined_s


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a loss becomes a gain; `why_never` says why it never does, and 0 is no bandwidth."""

    network_bytes_per_s: float = 0.0
    why_never: str = ""
