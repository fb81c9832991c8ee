"""`GET /metrics`: a Prometheus parser reads it, and its numbers are those of what happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchserver.clock import NS_PER_MS, VirtualClock
from benchserver.refserver.meter import BOUNDS_NS, UNREADABLE, Fate, Meter
from protocol.ops import Op
from tests.httpstage import OBJECT_BYTES, WITHIN_S, Engine, Site, engine_of, serving

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(site: Site) -> Samples:
    """Parse the document; every family must say what it is."""
    async with site.http.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(text_string_to_metric_families(await response.text()))
    assert all(family.documentation and family.type != "unknown" for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
    assert len(found) == len(samples), "a sample is there twice"
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"bench_embedded_{name}", frozenset(labels.items())]


async def exchange(engine: Engine) -> None:
    assert await engine.lookup(2, "cold") == 0
    assert await engine.store(2)
    assert await engine.lookup(3, "warm") == 2
    assert await engine.retrieve(2, "warm")
    assert await engine.lookup(1, "locked") == 1
    await engine.send(b"\xc1", b"no request")
    await engine.call(Op.PING, 1)


@pytest.mark.asyncio
async def test_an_exchange_is_counted() -> None:
    async with serving() as site, engine_of(site) as engine:
        before = await scrape(site)
        assert value(before, "stored_bytes_total") == 0
        await exchange(engine)
        after = await scrape(site)

        def requests(operation: str, outcome: str = "answered") -> float:
            return value(after, "requests_total", operation=operation, outcome=outcome)

        assert requests("lookup") == 3
        assert requests("commit_store") == requests("prepare_retrieve") == 1
        assert requests("unreadable", "refused") == 1
        expected = {
            "stored_objects_total": 2,
            "stored_bytes_total": 2 * OBJECT_BYTES,
            "read_objects_total": 2,
            "read_bytes_total": 2 * OBJECT_BYTES,
            "lookup_chunks_total": 2 + 3 + 1,
            "lookup_hit_chunks_total": 0 + 2 + 1,
            "evicted_objects_total": 0,
            "refused_reservations_total": 0,
            "objects": 2,
            "l1_used_bytes": 2 * 4096,
            "l1_capacity_bytes": 1 << 20,
            "read_locked_objects": 1,
            "write_locked_objects": 0,
            "sessions": 4,
            "unclaimed_lookups": 0,
        }
        assert {name: value(after, name) for name in expected} == expected
        assert value(after, "registered_instances", mode="engine_driven") == 1
        assert value(after, "registered_instances", mode="lmcache_driven") == 0
        assert value(after, "handler_seconds_count", operation="commit_store") == 1
        assert value(after, "handler_seconds_bucket", operation="lookup", le="+Inf") == 3


@pytest.mark.asyncio
async def test_evictions_refusals_and_deletions_are_counted() -> None:
    async with serving(l1_bytes=4 * 4096) as site, engine_of(site) as engine:
        assert await engine.store(4, "a")
        await engine.store(4, "b", token_ids=[7] * 4 * 32)
        await engine.store(5, "c", token_ids=[9] * 5 * 32)
        seen = await scrape(site)
        assert value(seen, "evicted_objects_total") > 0
        evicted_bytes = value(seen, "evicted_bytes_total")
        assert evicted_bytes == OBJECT_BYTES * value(seen, "evicted_objects_total")
        assert value(seen, "refused_reservations_total") == 2
        held = value(seen, "objects")
        assert (await site.ask("POST", "/cache/clear", {"force": True})).status == 200
        assert value(await scrape(site), "cleared_objects_total") == held


async def when_written(site: Site, *, objects: int) -> Samples:
    """Return the samples as soon as the tiers have so many objects."""
    while value(seen := await scrape(site), "l2_written_objects_total") < objects:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return seen


@pytest.mark.asyncio
async def test_tiers_are_counted_by_place_and_type(tmp_path: Path) -> None:
    urls = (f"fs://{tmp_path / 'near'}", "mock://1/?peeking_latency=0.1")
    async with serving(l2=urls) as site, engine_of(site) as engine:
        assert await engine.store(2)
        seen = await asyncio.wait_for(when_written(site, objects=4), WITHIN_S)  # two in each
        for tier, kind in (("0", "fs"), ("1", "mock")):
            assert value(seen, "l2_tier_objects", tier=tier, type=kind) == 2
            written = value(seen, "l2_tier_written_bytes_total", tier=tier, type=kind)
            assert written == 2 * OBJECT_BYTES
        capacities = {dict(labels)["type"] for name, labels in seen if "tier_capacity" in name}
        assert capacities == {"mock"}  # fs:// has none of its own


@pytest.mark.asyncio
async def test_a_lost_reply_counts_as_unanswered() -> None:
    async with serving(faults=("lost_reply:op=PING@1",)) as site, engine_of(site) as engine:
        await engine.give_up(Op.PING, 1)
        await engine.call(Op.NOOP)
        seen = await scrape(site)
        assert value(seen, "requests_total", operation="ping", outcome="unanswered") == 1


@pytest.mark.asyncio
async def test_latencies_fall_into_their_buckets_also_when_a_handler_fails() -> None:
    clock = VirtualClock()
    meter = Meter(clock)

    for duration_ns in (0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        try:
            with meter.timed(Op.STORE):
                await clock.sleep_ns(duration_ns)
                raise LookupError
        except LookupError:
            continue
    held = meter.latencies[Op.STORE]
    assert (held.counts[0], held.counts[1], held.counts[-1], sum(held.counts)) == (2, 1, 1, 4)
    assert held.sum_ns == 2 * BOUNDS_NS[0] + BOUNDS_NS[-1] + 2
    assert list(BOUNDS_NS) == sorted(BOUNDS_NS)
    assert BOUNDS_NS[0] == NS_PER_MS // 10


def test_fates_are_counted_apart() -> None:
    meter = Meter(VirtualClock())
    meter.count(Op.PING, Fate.ANSWERED)
    meter.count(Op.PING, Fate.ANSWERED)
    meter.count(None, Fate.DROPPED)
    assert dict(meter.fates) == {("ping", Fate.ANSWERED): 2, (UNREADABLE, Fate.DROPPED): 1}
