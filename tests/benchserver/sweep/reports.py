"""Reports of loads, records and matrices, for tests of the sweep."""

from __future__ import annotations

from typing import Any

from benchserver.options.kinds import Choice, Flag, Number, Text, Whole
from benchserver.options.option import NotReplayed, Option
from benchserver.sweep.cells import Cell, Run, Value
from benchserver.sweep.records import Record

_NOT = NotReplayed("for tests")

ROWS = {
    option.file_key: option
    for option in (
        Option(name="--duration", kind=Number(0.1, 1e6), help="", replay=_NOT),
        Option(name="--requests", kind=Whole(1, 1000), help="", replay=_NOT),
        Option(name="--concurrency", kind=Whole(1, 64), help="", replay=_NOT),
        Option(name="--num-tokens", kind=Whole(1, 1 << 20), help="", replay=_NOT),
        Option(name="--rate", kind=Text("R"), help="", replay=_NOT),
        Option(name="--workload", kind=Text("W"), help="", replay=_NOT),
        Option(name="--use-mla", kind=Flag(), help="", replay=_NOT),
        Option(name="--no-http", kind=Flag(), help="", replay=_NOT),
        Option(name="--http-token", kind=Text("T"), help="", replay=_NOT, secret=True),
        Option(name="--transfer-mode", kind=Choice(("auto", "inline")), help="", replay=_NOT),
    )
}
"""Options of a load, as far as tests need them."""


def report(
    *,
    per_s: float = 40.0,
    p99_ms: float = 12.0,
    verdict: str = "valid",
    valid: bool = True,
    limit: str = "",
) -> dict[str, Any]:
    """Return the report of a load."""
    latency = {"p50_ms": 5.0, "p90_ms": 8.0, "p99_ms": p99_ms, "p999_ms": 20.0, "max_ms": 25.0}
    return {
        "format": 1,
        "verdict": verdict,
        "exit_code": 0 if verdict == "valid" else 1,
        "latency": dict.fromkeys(("LOOKUP", "RETRIEVE", "STORE", "response"), latency),
        "load": {
            "rate_achieved_per_s": per_s,
            "duration_s": 2.0,
            "share_verified": 1.0,
            "measurement": {"valid": valid, "limit": limit, "reasons": [] if valid else ["late"]},
            "hits": {
                "measured": {"ratio": 0.5},
                "ideal_infinite": {"ratio": 0.75},
                "ideal_lru": None,
            },
            "missing": {"dropped_chunks": 0},
            "bytes": {"stored": 3_000_000_000, "retrieved": 1_000_000_000},
        },
    }


def cell(**varied: Value) -> Cell:
    """Return a cell of a running server."""
    load = {"duration": 2, "rpc-url": "tcp://localhost:5555", **varied}
    return Cell(load=load, server=(), varied=varied)


def record(run: Run, found: dict[str, Any] | None = None, trouble: str = "") -> Record:
    """Return the record of a run with this report, a good one if none is given."""
    document = {} if trouble else report() if found is None else found
    return Record(
        name=run.name,
        cell={"load": dict(run.cell.load), "varied": dict(run.cell.varied)},
        command=("load",),
        server=(),
        seed=1,
        exit_code=document.get("exit_code"),
        trouble=trouble,
        wall_s=2.5,
        report=document,
    )
