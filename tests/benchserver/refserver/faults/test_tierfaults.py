"""Faults of L2: what a lookup finds through them, what a client gets, and that nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from benchserver.clock import NS_PER_S, VirtualClock, idle
from benchserver.errors import UsageError
from benchserver.refserver.faults.table import FAULTS
from benchserver.refserver.faults.tierfaults import AlteredTier
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.backing import Backing
from benchserver.refserver.tiers.tier import TierError, TierMissError
from protocol.messages import VOID
from protocol.ops import Op
from tests.benchserver.refserver.tiers.reference import DictTier
from tests.faultstage import DONE, FROM, TO, Stage, staged
from tests.httpstage import serving
from tests.serverstage import (
    connected,
    key,
)

OBJECTS = 4
"""Two chunks of two ranks."""

OBJECT = ObjectKey(bytes(32), "m", 1, 0, "")
ENGINE = {
    "instance_id": 7,
    "model_name": "m",
    "world_size": 1,
    "block_size": 16,
    "num_layers": 2,
    "hidden_dim_size": 4,
    "dtype_str": "float16",
    "use_mla": False,
}
SWITCHES = [name for name, fault in FAULTS.items() if fault.tier is not None]


class HeldClock(VirtualClock):
    """A clock whose sleepers wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked_ns: list[int] = []

    async def sleep_ns(self, duration_ns: int) -> None:
        self.asked_ns.append(duration_ns)
        await self.gate.wait()


@pytest.fixture
def tier() -> DictTier:
    """Give the only tier of `stage`."""
    return DictTier()


@pytest_asyncio.fixture
async def stage(tier: DictTier) -> AsyncIterator[Stage]:
    """Give a stage with L2."""
    async with staged((tier,)) as stage:
        yield stage


def backing_of(stage: Stage) -> Backing:
    assert stage.core.backing is not None
    return stage.core.backing


async def store(stage: Stage) -> None:
    """Store on both ranks, wait for L2, and lose L1."""
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
    await stage.call(Op.END_SESSION, "a")
    await backing_of(stage).drain()
    stage.core.cache.clear(force=True, now_ns=0)


async def look(stage: Stage) -> int:
    """Look up, and poll as a client does, until there is a result."""
    hits = await stage.lookup("a")
    while hits is VOID:
        await idle()
        hits = await stage.call(Op.QUERY_PREFETCH_STATUS, "a")
    return int(hits)


def left(stage: Stage) -> int:
    """Return how many objects L1 has, reservations included."""
    return stage.core.cache.counts(0).objects


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "hits", "fired"),
    [
        ("tier_read_error", 0, 2),
        ("tier_read_error@1", 0, 1),
        ("tier_read_error@3", 1, 1),
        ("tier_short_read", 0, 2),
        ("tier_short_read@4", 1, 1),
        ("tier_write_error", 0, 4),
        ("tier_write_error@4", 1, 1),
        ("tier_enospc", 0, 4),
        ("tier_enospc@1", 0, 1),
        ("tier_stall", 2, 6),
        ("tier_lies", 0, 1),
        ("tier_lies@2", 1, 1),
        ("tier_corrupt", 2, 4),
        ("tier_empty_read@2", 2, 1),
    ],
)
async def test_a_hit_is_as_long_as_what_came(
    stage: Stage, switch: str, hits: int, fired: int
) -> None:
    stage.switch(switch)
    await store(stage)
    assert await look(stage) == hits
    assert stage.fired() == [fired]
    assert left(stage) == stage.locks() == 2 * hits  # no half of a chunk, and nothing reserved


def test_every_switch_has_a_row() -> None:
    assert SWITCHES == [
        "tier_read_error",
        "tier_short_read",
        "tier_write_error",
        "tier_enospc",
        "tier_stall",
        "tier_lies",
        "tier_corrupt",
        "tier_empty_read",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("switch", ["tier_read_error@1", "tier_short_read@1", "tier_lies@1"])
async def test_what_was_not_read_is_read_the_next_time_and_right(stage: Stage, switch: str) -> None:
    stage.switch(switch)
    await store(stage)
    assert await look(stage) == 0
    assert await look(stage) == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        assert stage.restored(rank).all()


@pytest.mark.asyncio
async def test_a_flipped_bit_is_served_and_is_the_only_one(stage: Stage) -> None:
    stage.switch("tier_corrupt@1")
    await store(stage)
    assert await look(stage) == 2
    wrong = 0
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        for page in stage.pages[rank]:
            wrong += int.from_bytes((page[:, TO] ^ page[:, FROM]).tobytes(), "big").bit_count()
    assert wrong == 1


@pytest.mark.asyncio
async def test_an_empty_read_is_served_as_zeros(stage: Stage) -> None:
    stage.switch("tier_empty_read")
    await store(stage)
    assert await look(stage) == 2
    assert await stage.retrieve("a", 0) == DONE
    assert not any(page[:, TO].any() for page in stage.pages[0])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "said"),
    [
        ("tier_enospc", "a chunk was not written: fault tier_enospc: ENOSPC, No space left"),
        ("tier_write_error", "a chunk was not written: fault tier_write_error: EIO, Input/output"),
    ],
)
async def test_a_refused_write_is_told_and_backs_nothing(
    stage: Stage, tier: DictTier, switch: str, said: str
) -> None:
    stage.switch(switch)
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
    backing = backing_of(stage)
    await backing.drain()
    totals = backing.totals()
    assert (totals.failed_writes, totals.written_objects) == (OBJECTS, 0)
    assert len(stage.core.cache.unbacked()) == OBJECTS
    assert not tier.objects
    assert said in stage.lines[0]


@pytest.mark.asyncio
async def test_errors_and_misses_are_counted_as_the_tiers_own(stage: Stage) -> None:
    await store(stage)
    for switch, errors, misses in (
        ("tier_read_error", 2, 0),
        ("tier_short_read", 2, 0),
        ("tier_lies", 0, 2),
    ):
        stage.switch(switch)
        assert await look(stage) == 0
        stats = backing_of(stage).tiers[0].stats
        assert (stats.errors, stats.misses) == (errors, misses)
        assert stats.objects == OBJECTS


@pytest.mark.asyncio
async def test_a_liar_says_yes_to_what_it_never_had_and_gives_nothing() -> None:
    tier, out = DictTier(), memoryview(bytearray(8))

    async with staged((tier,)) as stage:
        stage.switch("tier_lies@1")
        [liar] = backing_of(stage).tiers
        assert await liar.probe([OBJECT]) == 1
        with pytest.raises(TierMissError, match="it was there a moment ago"):
            await liar.read(OBJECT, out)
        await liar.write(OBJECT, memoryview(b"8 bytes!"))
        assert await liar.probe([OBJECT]) == 1
        await liar.read(OBJECT, out)
        assert bytes(out) == b"8 bytes!"


@pytest.mark.asyncio
async def test_a_stalled_tier_holds_up_its_own_lookup_alone() -> None:
    clock = HeldClock()

    async with staged((DictTier(),), clock) as stage:
        stage.switch("tier_stall:3s")
        await store(stage)
        assert await stage.lookup("a") is VOID
        for _ in range(3):
            await idle()
            assert await stage.call(Op.PING, None) is True
            assert await stage.call(Op.QUERY_PREFETCH_STATUS, "a") is VOID
        assert clock.asked_ns == [3 * NS_PER_S]
        clock.gate.set()
        assert await look(stage) == 2
        assert set(clock.asked_ns) == {3 * NS_PER_S}
        for rank in range(2):
            assert await stage.retrieve("a", rank) == DONE
            assert stage.restored(rank).all()


@pytest.mark.asyncio
@pytest.mark.parametrize("stalled", ["@1", "@2..3"], ids=["probe", "reads"])
async def test_whoever_gives_up_a_stalled_lookup_leaves_nothing(stalled: str) -> None:
    async with staged((DictTier(),), HeldClock()) as stage:
        stage.switch(f"tier_stall:3s{stalled}")
        await store(stage)
        assert await stage.lookup("a") is VOID
        await idle()
        await stage.call(Op.END_SESSION, "a")
        await idle()
        assert stage.locks() == left(stage) == 0
        stage.switch()
        assert await look(stage) == 2


@pytest.mark.asyncio
async def test_a_ping_is_answered_while_l2_hangs() -> None:
    """Over the wire, on the very connection that looks up."""

    clock = VirtualClock(by_hand=True)
    served = serving(clock=clock, l2=("mock://1/",), faults=("tier_stall:3s",))
    async with served as server, connected(server.rpc_port) as [client]:
        assert await client.call(Op.REGISTER_ENGINE_DRIVEN, ENGINE) is not None
        assert await client.call(Op.LOOKUP, key("a", worker_id=None), 1) is VOID
        for _ in range(3):
            assert await client.call(Op.PING, None) is True
            assert await client.call(Op.QUERY_PREFETCH_STATUS, "a") is VOID
        await clock.move_ns(2 * NS_PER_S)
        assert await client.call(Op.QUERY_PREFETCH_STATUS, "a") is VOID
        hits = VOID
        while hits is VOID:
            await clock.move_ns(NS_PER_S)
            hits = await client.call(Op.QUERY_PREFETCH_STATUS, "a")
        assert hits == 0


@pytest.mark.asyncio
async def test_replacing_the_set_takes_every_wrapper_out(stage: Stage, tier: DictTier) -> None:
    backing = backing_of(stage)
    assert backing.tiers == (tier,)
    stage.switch("tier_lies", "tier_corrupt")
    assert isinstance(backing.tiers[0], AlteredTier)
    stage.switch("tier_stall")
    assert backing.tiers[0].name == "dict"
    stage.switch("leak_session")
    assert backing.tiers == (tier,)


@pytest.mark.asyncio
async def test_a_server_without_l2_refuses_and_keeps_its_set() -> None:
    async with staged() as stage:
        stage.switch("leak_session")
        with pytest.raises(UsageError, match="this server has no L2 tier"):
            stage.switch("drop_store", "tier_enospc")
        assert [f["fault"] for f in stage.board.document()["faults"]] == ["leak_session"]


@pytest.mark.asyncio
@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_fault_that_does_not_fire_changes_nothing(
    stage: Stage, tier: DictTier, switch: str
) -> None:
    stage.switch(f"{switch}@1000")
    await store(stage)
    assert await look(stage) == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        assert stage.restored(rank).all()
    assert stage.fired() == [0]
    [around] = backing_of(stage).tiers
    await around.flush()
    await around.close()
    assert not tier.open
    with pytest.raises(TierError):
        await around.read(OBJECT, memoryview(bytearray(8)))
