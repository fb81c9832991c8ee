"""Reports of runs as `--json` writes them, as far as a comparison reads them."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchserver.compare.facts import facts_of
from benchserver.compare.figures import figures_of
from benchserver.compare.reading import Run

_NUMBERS = itertools.count(1)

REPORT: dict[str, Any] = {
    "format": 1,
    "verdict": "valid",
    "exit_code": 0,
    "interrupted": False,
    "server": {
        "rpc_url": "tcp://127.0.0.1:5555",
        "version": "0.5.6",
        "chunk_tokens": 256,
        "transfer_mode": "lmcache_driven",
        "transport": "handle",
        "embedded": False,
    },
    "config": {"rpc_url": "tcp://127.0.0.1:5555", "seed": 7, "num_tokens": 512, "rate": None},
    "latency": {},
    "throughput_gb_per_s": {"STORE": 2.0, "RETRIEVE": 3.0},
    "replay": "bench-server load --mode cpu --seed 7",
    "run": {
        "id": "1",
        "started_at": "2026-12-01T10:00:00.000+00:00",
        "software": {"bench_server": "0.1.0", "packages": {"numpy": "2.4.6", "lmcache": "0.5.6"}},
        "engine": {"seed": 7, "tp_size": 1},
        "server": {
            "configuration": {"mp": {"port": 5555, "chunk_size": 256}},
            "l1_bytes": 1 << 30,
            "cache": "cold",
        },
        "memory": {"own_peak_bytes": 100 << 20, "server": {"peak_bytes": 200 << 20}},
    },
    "environment": {"kernel": "6.1", "cpu_model": "a model", "memory_bytes": 25276510208},
}


def report(*, retrieve_ms: float = 10.0, count: int = 1000, at_s: float = 0.0) -> dict[str, Any]:
    """Return a report of its own id whose RETRIEVE takes so long."""
    made = copy.deepcopy(REPORT)
    latency = dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "p999_ms", "mean_ms"), retrieve_ms)
    made["latency"]["RETRIEVE"] = {"count": count, **latency}
    made["run"]["id"] = f"run-{next(_NUMBERS)}"
    hours, minutes = divmod(int(at_s) // 60, 60)
    made["run"]["started_at"] = f"2026-12-01T{hours:02}:{minutes:02}:{at_s % 60:06.3f}+00:00"
    return made


def with_values(made: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with other values, by their paths: `config.num_tokens`."""
    for path, value in changes.items():
        *parts, last = path.split(".")
        inner = made
        for part in parts:
            inner = inner[part]
        inner[last] = value
    return made


def run(name: str = "", began_s: float | None = None, **changes: Any) -> Run:
    """Return a run as it is read; `changes` are those of `report`."""
    made = report(**changes)
    return run_of(made, name or made["run"]["id"], began_s)


def run_of(made: Mapping[str, Any], name: str, began_s: float | None = None) -> Run:
    """Return the run of a report."""
    return Run(
        name=name,
        run_id=str(made["run"]["id"]),
        began_s=began_s,
        server=str(made["server"]["version"]),
        varied={},
        facts=facts_of(made),
        figures=figures_of(made),
        troubles=(),
    )


def written(path: Path, made: Any) -> str:
    """Write a report, and return where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made))
    return str(path)
