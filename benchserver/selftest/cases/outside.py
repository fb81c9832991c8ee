"""Faults of the HTTP API and of the L2 tiers."""

from __future__ import annotations

from benchserver.selftest.case import SHM, Case
from benchserver.selftest.cases.sharing import FILES, HIT_NONE, ONE, WARM, from_l2

HTTP = (
    Case(switch="digest_lies", checks=("digests",), words=("leg source, chunk 0",)),
    Case(
        switch="digest_hangs",
        checks=("digests",),
        words=("/cache/checksums: no answer within 1 s",),
        options=ONE,
    ),
    Case(switch="digest_500", checks=("digests",), words=("HTTP 500", "disk on fire")),
    Case(switch="digest_half_json", checks=("digests",), words=("are not JSON",)),
    Case(switch="digest_cut", checks=("digests",), words=("ClientPayloadError",)),
    Case(
        switch="status_lies",
        checks=("residue",),
        words=("sessions more than before the run",),
    ),
    Case(
        switch="unhealthy",
        checks=("health",),
        words=("before the run, the server is not well", "storage_manager (is_healthy false)"),
    ),
    Case(
        switch="dead_thread",
        checks=("health",),
        words=("before the run", "l1_eviction_controller (thread_alive false)"),
    ),
    Case(
        switch="dead_thread@3+",
        checks=("health",),
        words=("after the run", "l1_eviction_controller (thread_alive false)"),
    ),
    Case(switch="status_500", checks=("residue",), words=("HTTP 500",)),
)

TIERS = (
    from_l2(switch="tier_read_error", checks=("cold_lookup",), words=HIT_NONE),
    from_l2(switch="tier_short_read", checks=("cold_lookup",), words=HIT_NONE),
    from_l2(
        switch="tier_short_read@2",
        checks=("cold_lookup",),
        words=("cold LOOKUP hit 1/2 chunks, expected 2/2",),
        serve=FILES,
        note="files",
    ),
    from_l2(switch="tier_write_error", checks=("cold_lookup",), words=HIT_NONE),
    from_l2(
        switch="tier_enospc",
        checks=("cold_lookup",),
        words=HIT_NONE,
        serve=FILES,
        note="files",
    ),
    from_l2(
        switch="tier_stall:3s@2+",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        before=("--end", "1"),
        options=(*ONE, *WARM),
    ),
    from_l2(switch="tier_lies", checks=("cold_lookup",), words=HIT_NONE),
    from_l2(switch="tier_corrupt@2", checks=("content",), words=("1 of 192 pages", "chunk 1")),
    from_l2(
        switch="tier_corrupt",
        checks=("content",),
        words=("2 of 192 pages wrong",),
        transport=SHM,
    ),
    from_l2(
        switch="tier_empty_read",
        checks=("content",),
        words=("192 of 192 pages wrong", "(zeros)"),
    ),
)
