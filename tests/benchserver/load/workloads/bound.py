"""Workloads on terms, as tests bind them, and what every workload must hold."""

from __future__ import annotations

import itertools
from pathlib import Path

from benchserver.load.request import Request
from benchserver.load.workloads.parse import parse_workload
from benchserver.load.workloads.workload import Terms, Workload

TRACE = f"trace:{Path(__file__).with_name('small.jsonl')}"
"""Three requests with blocks in common."""


def terms(
    *,
    seed: int = 1,
    num_tokens: int = 64,
    in_flight: int = 4,
    chunk_tokens: int = 16,
    chunk_bytes: int = 1024,
    l1_bytes: int = 0,
) -> Terms:
    """Return terms of small numbers."""
    return Terms(
        seed=seed,
        num_tokens=num_tokens,
        in_flight=in_flight,
        chunk_tokens=chunk_tokens,
        chunk_bytes=chunk_bytes,
        l1_bytes=l1_bytes,
    )


def first(workload: Workload, count: int) -> list[Request]:
    """Return the first requests of a workload."""
    return list(itertools.islice(workload.requests(), count))


def holds(text: str, on: Terms, count: int = 50) -> list[Request]:
    """Return the first requests of a workload, after looking at what all workloads promise."""
    workload = parse_workload(text).bind(on)
    found = first(workload, count)
    assert found == first(workload, count) == first(parse_workload(text).bind(on), count)
    assert len(found) == min(count, workload.count or count)
    assert [request.number for request in found] == list(range(len(found)))
    assert all(0 < request.num_tokens <= workload.max_tokens for request in found)
    assert all(part.count > 0 for request in found for part in request.parts)
    assert all(request.after is None or request.after < request.number for request in found)
    assert workload.describe().isprintable()
    return found
