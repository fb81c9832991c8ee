"""The workers of a run over pools that note what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from benchserver.client.scripted import NEVER, ScriptedConnection
from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.config.engine import Engine
from benchserver.errors import FatalError
from benchserver.kv.blocks import Window
from benchserver.kv.placement import RankDevice
from benchserver.options.engine import TransferChoice
from benchserver.stage.workforce import UnregisteredError, Workforce
from protocol.dialects import V056
from protocol.ops import Op
from tests.benchserver.stage.runs import SPEC, MakeEngine
from tests.inline import InlineExecutor


class NotingPool:
    """A pool on the host that notes the blocks that are written once before a run."""

    asynchronous = False

    def __init__(self) -> None:
        self.poisoned: list[Window] = []
        self.released = self.closed = False

    def poison(self, window: Window) -> None:
        self.poisoned.append(window)

    def release(self) -> None:
        self.released = True

    def close(self) -> None:
        self.closed = True


class NotingPools:
    """Pools of as many ranks as there is room for."""

    devices: tuple[RankDevice, ...] = ()
    slow_kernels = ""

    def __init__(self, room: int = 8) -> None:
        self.room = room
        self.made: list[NotingPool] = []
        self.required = False

    def require(self) -> None:
        self.required = True

    def make(self, rank: int) -> Any:
        assert self.required
        if rank >= self.room:
            raise FatalError(f"no room for rank {rank}")
        self.made.append(NotingPool())
        return self.made[-1]


def workforce(
    engine: Engine, pools: NotingPools, clock: VirtualClock, served: str, clients: int = 1
) -> Workforce:
    return Workforce(
        engine,
        clients=clients,
        timeout_s=1.0,
        choice=TransferChoice.ENGINE_DRIVEN,
        served=served,
        geometry=engine.geometry(64),
        nonce=b"\0\0\0\0\1",
        clock=clock,
        executor=InlineExecutor(),
        pools=cast(Any, pools),
    )


def connections(script: dict[Op, Any], clock: VirtualClock) -> Callable[[str], ScriptedConnection]:
    return lambda _place: ScriptedConnection(script, V056, clock=clock)


@pytest.mark.asyncio
async def test_the_blocks_of_the_first_turns_are_written_before_anything_is_registered(
    make_engine: MakeEngine,
) -> None:
    engine, pools, clock = make_engine(spec=SPEC, tp_size=2), NotingPools(), VirtualClock()
    force = workforce(engine, pools, clock, "auto")
    await force.build(connections({}, clock), range(5, 1000))
    for rank, pool in enumerate(pools.made):
        plans = [engine.block_plan(engine.geometry(64), turn=t, rank=rank) for t in (5, 6)]
        assert pool.poisoned == [w for p in plans for w in (p.source, p.destination)]
    assert force.instances == {(1 << 12) | rank for rank in range(2)}
    assert force.transports == set()


@pytest.mark.asyncio
async def test_a_pool_that_cannot_be_made_leaves_the_others_to_be_closed(
    make_engine: MakeEngine,
) -> None:
    pools, clock = NotingPools(room=2), VirtualClock()
    force = workforce(make_engine(spec=SPEC, tp_size=3), pools, clock, "auto")
    with pytest.raises(FatalError, match="no room for rank 2"):
        await force.build(connections({}, clock), range(1))
    force.release()
    await force.close(1.0)
    assert [(pool.released, pool.closed) for pool in pools.made] == [(True, True)] * 2


@pytest.mark.parametrize(("served", "said"), [("", True), ("auto", False)])
@pytest.mark.asyncio
async def test_what_is_not_answered_may_be_registered_and_is_taken_back(
    make_engine: MakeEngine, served: str, said: bool
) -> None:
    script = {Op.REGISTER_ENGINE_DRIVEN: NEVER, Op.UNREGISTER_ENGINE_DRIVEN: NEVER}
    pools, clock = NotingPools(), VirtualClock()
    force = workforce(make_engine(spec=SPEC), pools, clock, served)
    await force.build(connections(script, clock), range(1))
    with pytest.raises(UnregisteredError) as caught:
        await force.register()
    assert caught.value.seen in str(caught.value)
    assert ("does not serve --transfer-mode engine_driven" in str(caught.value)) is said
    (text,) = await force.unregister(timeout_ns=2 * NS_PER_S)
    assert text.startswith("rank=0: UNREGISTER")


@pytest.mark.asyncio
async def test_every_lease_of_every_client_is_written_once_beforehand(
    make_engine: MakeEngine,
) -> None:
    engine, pools, clock = (
        make_engine(spec="(2,256,16,2,8):float16:2"),
        NotingPools(),
        VirtualClock(),
    )
    force = workforce(engine, pools, clock, "auto", clients=2)
    await force.build(connections({}, clock), range(5, 6), 2)
    leases = [
        engine.block_plan(engine.geometry(64), turn=5, rank=0, lease=lease, leases=2)
        for lease in range(2)
    ]
    windows = [window for plan in leases for window in (plan.source, plan.destination)]
    assert [pool.poisoned for pool in pools.made] == [windows] * 2
    assert [worker.rank for worker in force.workers] == [0, 0]
    assert [worker.client for worker in force.workers] == [0, 1]
