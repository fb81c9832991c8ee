"""Reports of runs, made by hand: enough of one for every chart."""

from __future__ import annotations

from typing import Any

LATENCY = {
    "count": 40, "mean_ms": 2.0, "min_ms": 1.0, "p50_ms": 1.9, "p90_ms": 4.0, "p99_ms": 7.5,
    "p999_ms": 8.0, "max_ms": 8.0,
}  # fmt: skip


def check(verdict: str = "valid", **changes: Any) -> dict[str, Any]:
    """Return a check of a report."""
    fields = {"passed": 4, "failed": 0, "unproven": 0, "not_evaluated": "", "texts": []}
    return {"verdict": verdict, **fields, **changes}


def run_document(**changes: Any) -> dict[str, Any]:
    """Return the report of a load, with changes."""
    document: dict[str, Any] = {
        "format": 1,
        "verdict": "valid",
        "exit_code": 0,
        "interrupted": False,
        "wall_s": 4.0,
        "server": {"version": "0.5.6", "rpc_url": "tcp://host:1", "embedded": False},
        "config": {"seed": 7, "spec": "(2,8,16,1,8):float16:1"},
        "sequences": {"attempted": 4, "proven": 4, "failed": 0, "unproven": 0},
        "checks": {"content": check(), "digests": check(passed=0, not_evaluated="--digests off")},
        "probes": {"look_back": {"made": 3, "not_evaluated": ""}},
        "latency": {"RETRIEVE": LATENCY, "STORE": {**LATENCY, "p99_ms": 9.25}},
        "throughput_gb_per_s": {"STORE": 1.5},
        "over_time": {
            "slot_s": 1,
            "slots": 4,
            "bounds_ms": [1.0, 2.0, 4.0, 8.0, 16.0],
            "series": {"RETRIEVE": [[0, 0, 9], [0, 2, 1], [3, 1, 30]]},
            "bytes": {"STORE": [[0, 1_000_000_000], [2, 500_000_000]]},
            "units": [[0, 2, 0, 0], [3, 2, 1, 0]],
        },
        "replay": "bench-server load --seed 7",
        "load": {
            "rate_achieved_per_s": 10.0,
            "hits": {"measured": {"ratio": 0.5}, "ideal_infinite": {"ratio": 0.75}},
            "measurement": {"valid": True, "limit": "", "reasons": []},
        },
        "growth": {
            "resources": [
                {
                    "name": "server memory",
                    "side": "server",
                    "unit": "bytes",
                    "samples": [[0, 1e8], [10, 1.1e8], [20, 1.2e8]],
                    "verdict": "grows",
                    "reason": "by 61 MB/h",
                }
            ]
        },
        "run": {"id": "r", "software": {"python": "3.11"}},
        "environment": {"cpus": 2},
    }
    return {**document, **changes}
