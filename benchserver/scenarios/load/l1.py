"""How much the L1 of the server that was met can hold, by what it says of itself."""

from __future__ import annotations

from benchserver.config.engine import Engine
from benchserver.geometry import Geometry
from benchserver.stage.stage import Stage


def l1_bytes(stage: Stage) -> int:
    """Return the bytes of the server's L1, 0 if it does not say."""
    before = stage.met.condition.before
    return 0 if before is None else before.l1_bytes


def chunk_bytes(engine: Engine, geometry: Geometry) -> int:
    """Return the bytes that a chunk takes on the server: those of all its ranks."""
    return geometry.chunk_bytes * engine.world_size


def l1_chunks(stage: Stage) -> int:
    """Return how many chunks L1 holds, 0 if the server does not say."""
    crew = stage.crews[0]
    return l1_bytes(stage) // chunk_bytes(crew.engine, crew.geometry)
