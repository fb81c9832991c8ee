"""Snapshots written by hand, for tests of what shows them."""

from __future__ import annotations

from typing import Any

from benchserver.check.verdict import Verdict
from benchserver.monitor.snapshot import HitsNow, OperationNow, ResourceNow, Snapshot


def operation(name: str, **changes: Any) -> OperationNow:
    """Return an operation with ten good calls, with these changes."""
    fields: dict[str, Any] = {
        "name": name,
        "count": 10,
        "errors": 0,
        "total_ms": 15.0,
        "rate_per_s": 5.0,
        "p50_ms": 1.0,
        "p99_ms": 2.5,
        "p999_ms": 3.0,
        "total_p50_ms": 1.25,
        "total_p99_ms": 20.0,
    }
    return OperationNow(**fields | changes)


def resource(name: str, **changes: Any) -> ResourceNow:
    """Return a server's resource of a GiB that does not grow, with these changes."""
    fields: dict[str, Any] = {
        "name": name,
        "side": "server",
        "unit": "bytes",
        "value": float(1 << 30),
        "verdict": "flat",
        "reason": "",
    }
    return ResourceNow(**fields | changes)


def snapshot(**changes: Any) -> Snapshot:
    """Return a good run in the middle, with these changes."""
    fields: dict[str, Any] = {
        "at_s": 192.5,
        "time": "2026-12-01T12:00:00.000+00:00",
        "phase": "running",
        "unit": "sequence",
        "verdict": Verdict.VALID,
        "proven": 60,
        "failed": 0,
        "unproven": 0,
        "calls": 480,
        "units_per_s": 2.5,
        "operations": (operation("STORE"), operation("LOOKUP warm", p99_ms=0.75)),
        "hits": HitsNow(asked_chunks=200, hit_chunks=150),
        "gb_per_s": {"STORE": 1.5},
        "failures": (),
        "failed_checks": {},
        "resources": (resource("server memory"),),
        "reconnects": 0,
        "stalled_s": 0.0,
        "total_units": 100,
        "duration_s": None,
    }
    return Snapshot(**fields | changes)


def empty_snapshot(**changes: Any) -> Snapshot:
    """Return a run that has only begun: nothing is known of anything."""
    nothing: dict[str, Any] = {
        "at_s": 0.0,
        "phase": "starting",
        "verdict": Verdict.UNKNOWN,
        "proven": 0,
        "calls": 0,
        "units_per_s": 0.0,
        "operations": (),
        "hits": None,
        "gb_per_s": {},
        "resources": (),
        "total_units": None,
    }
    return snapshot(**nothing | changes)


def bad_snapshot(**changes: Any) -> Snapshot:
    """Return a run in which everything is wrong that can be."""
    wrong: dict[str, Any] = {
        "verdict": Verdict.INVALID,
        "failed": 3,
        "unproven": 1,
        "operations": (operation("STORE", errors=2, p50_ms=None, p99_ms=None, p999_ms=None),),
        "failures": ("seq=7: content: rank=0 layer 3: bytes differ", "seq=8: store: no answer"),
        "failed_checks": {"content": 3, "store": 1},
        "resources": (
            resource("server memory", verdict="grows", reason="4.1 MiB an hour, at most 1 may be"),
            resource("our descriptors", side="ours", unit="count", value=24.0),
            resource("server locks", unit="count", value=None, verdict="not measured"),
        ),
        "reconnects": 2,
        "stalled_s": 12.0,
    }
    return snapshot(**wrong | changes)
