"""Which GPU each rank's pool lies on, and how its memory is described: values, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CudaIpc = Literal["torch", "driver"]
"""How GPU memory is described to a server: as torch shares it, or by the driver's handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDevice:
    """The device of one rank.

    `number` counts the devices that this process sees; `uuid` is the same everywhere, in torch's
    spelling, and so what a server looks the device up by.
    """

    rank: int
    number: int
    name: str
    uuid: str


def device_numbers(ranks: int, devices: int) -> list[int]:
    """Return each rank's device, in turn over all that are visible."""
    return [rank % devices for rank in range(ranks)]
