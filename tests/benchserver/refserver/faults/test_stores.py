"""What a STORE that was acknowledged has done, while a fault is on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.clock import NS_PER_MS
from protocol.ops import Op
from tests.faultstage import CHUNK, DONE, FROM, TO, Stage

# STORE, LOOKUP, leaks


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "hits"),
    [
        ("drop_store", 0),
        ("drop_store:rank=1", 0),
        ("drop_store@3+", 2),
        ("stuck_store", 0),
        ("lost_chunk", 1),
        ("full_l1", 0),
        ("clear_between", 0),
        ("miscount_up", 3),
        ("miscount_down", 1),
        ("hole_counted", 2),
        ("refuse_store", 2),
    ],
)
async def test_what_a_lookup_finds_after_a_store(stage: Stage, switch: str, hits: int) -> None:
    stage.switch(switch)
    ok = switch != "refuse_store"
    for rank in range(2):
        assert await stage.store("a", rank) == replace(DONE, ok=ok)
    assert await stage.lookup("a") == hits
    assert await stage.lookup("other") == 0


@pytest.mark.asyncio
async def test_what_was_acknowledged_early_is_found_later_and_was_read_before(stage: Stage) -> None:
    stage.switch("early_ack:300ms")
    before = [[layer[:, FROM].copy() for layer in rank] for rank in stage.pages]
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
        for layer in stage.pages[rank]:
            layer[:, FROM] = 0
    assert await stage.lookup("a") == 0
    await stage.core.clock.sleep_ns(300 * NS_PER_MS)
    assert await stage.store("a") == DONE  # what is found stays found
    assert await stage.lookup("a") == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        for layer, old in zip(stage.pages[rank], before[rank], strict=True):
            assert (layer[:, TO] == old).all()


@pytest.mark.asyncio
async def test_an_early_acknowledgement_hides_no_chunk_before_the_new_ones(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank, end=CHUNK)
    stage.switch("early_ack:300ms")
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("ends_before", [True, False])
async def test_a_source_that_is_read_late_is_stored_as_it_is_then(
    stage: Stage, ends_before: bool
) -> None:
    stage.switch("late_read")
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
        for layer in stage.pages[rank]:
            layer[:, FROM] = 0x7E7E
    assert await stage.lookup("a") == 0
    if ends_before:
        await stage.call(Op.END_SESSION, "a")
    started_ns = stage.core.clock.now_ns()
    for pending in (stage.later.pop(0), stage.later.pop(0)):
        await pending
    assert stage.core.clock.now_ns() - started_ns == 200 * NS_PER_MS  # one after the other
    assert stage.core.sessions.count == (not ends_before)
    assert await stage.lookup("a") == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        assert all((layer[:, TO] == 0x7E7E).all() for layer in stage.pages[rank])
