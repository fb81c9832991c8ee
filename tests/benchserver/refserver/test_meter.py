"""What became of requests, and how long their handlers took, in fixed buckets."""

from __future__ import annotations

import pytest

from benchserver.clock import NS_PER_MS, VirtualClock
from benchserver.refserver.meter import BOUNDS_NS, UNREADABLE, Fate, Latencies, Meter
from protocol.ops import Op


def test_a_duration_falls_into_the_first_bucket_that_holds_it() -> None:
    latencies = Latencies()
    for duration_ns in (0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1], BOUNDS_NS[-1] + 1):
        latencies.add(duration_ns)
    assert latencies.counts[:2] == [2, 1]
    assert latencies.counts[-2:] == [1, 1]
    assert sum(latencies.counts) == 5
    assert latencies.sum_ns == 2 * (BOUNDS_NS[0] + BOUNDS_NS[-1] + 1)


def test_requests_are_counted_by_operation_and_fate() -> None:
    meter = Meter(VirtualClock())
    for op, fate in (
        (Op.PING, Fate.ANSWERED),
        (Op.PING, Fate.ANSWERED),
        (Op.PING, Fate.DROPPED),
        (None, Fate.REFUSED),
    ):
        meter.count(op, fate)
    assert dict(meter.fates) == {
        (Op.PING.value, Fate.ANSWERED): 2,
        (Op.PING.value, Fate.DROPPED): 1,
        (UNREADABLE, Fate.REFUSED): 1,
    }


@pytest.mark.asyncio
async def test_a_handler_is_timed_however_it_ends() -> None:
    clock = VirtualClock()
    meter = Meter(clock)

    async def handle(duration_ns: int, error: Exception | None = None) -> None:
        with meter.timed(Op.LOOKUP):
            await clock.sleep_ns(duration_ns)
            if error is not None:
                raise error

    await handle(3 * NS_PER_MS)
    with pytest.raises(KeyError):
        await handle(4 * NS_PER_MS, KeyError())
    assert meter.latencies.keys() == {Op.LOOKUP}
    assert meter.latencies[Op.LOOKUP].sum_ns == 7 * NS_PER_MS
    assert sum(meter.latencies[Op.LOOKUP].counts) == 2
