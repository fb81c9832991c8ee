"""A run's JSON report, as far as a hit is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def report(**changes: Any) -> dict[str, Any]:
    """Return a report of two ranks: 600 tokens asked, 2 chunks of 256 tokens, 16 KiB a token."""
    document: dict[str, Any] = {
        "format": 1,
        "verdict": "valid",
        "server": {"chunk_tokens": 256},
        "config": {"spec": "(2,256,16,8,128):float16:4", "num_tokens": 600, "tp_size": 2},
        "latency": {"LOOKUP warm": {"p50_ms": 1.25}},
        "throughput_gb_per_s": {"STORE": 1.0, "RETRIEVE": 4.0},
    }
    return document | changes


def written(folder: Path, document: Any) -> str:
    """Return the path of a report that has been written."""
    path = folder / "run.json"
    path.write_text(json.dumps(document))
    return str(path)
