"""Pools on the host and on GPUs, those of a machine whose GPUs are not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.config.engine import Engine
from benchserver.errors import FatalError
from benchserver.kv.content import PoolContent
from benchserver.kv.gpu import making
from benchserver.kv.host import segment
from benchserver.kv.layout import place_tensors
from benchserver.kv.placement import RankDevice
from benchserver.stage.pools import GpuPools, HostPools, kv_rank, make_pools
from shapespec import parse_shape_spec

MakeEngine = Callable[..., Engine]
SPEC = "(2,128,16,2,8):float16:2"
POOL_BYTES = place_tensors(parse_shape_spec(SPEC))[1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let GPU pools be made of nothing; return with what they were."""
    pools: list[dict[str, Any]] = []

    class Pool:
        def __init__(self, rank: int) -> None:
            self.kernels_note = f"another reason, of rank {rank}" if rank else "no compiler"

    def assign(ranks: int, nbytes: int) -> list[RankDevice]:
        assert nbytes == POOL_BYTES
        return [RankDevice(rank=r, number=r, name="FAKE", uuid=f"u{r}") for r in range(ranks)]

    def make(content: PoolContent, device: RankDevice, **parts: Any) -> Pool:
        pools.append({"content": content, "device": device, **parts})
        return Pool(device.rank)

    monkeypatch.setattr(making, "assign_devices", assign)
    monkeypatch.setattr(making, "make_pool", make)
    return pools


def test_pools_on_gpus_share_their_pinned_memory(
    make_engine: MakeEngine, made: list[dict[str, Any]]
) -> None:
    engine = make_engine(spec=SPEC, tp_size=3, mode="gpu", cuda_ipc="driver")
    cancel = threading.Event()
    pools = make_pools(engine, engine.geometry(64), b"\0", cancel, 3)
    assert isinstance(pools, GpuPools)
    pools.require()
    for rank in range(3):
        pools.make(rank)
    assert [one["device"] for one in made] == list(pools.devices)
    assert len({id(one["lanes"]) for one in made}) == 1
    for rank, one in enumerate(made):
        assert (one["ipc"], one["cancel"]) == ("driver", cancel)
        assert (one["content"].rank, one["content"].ranks) == (rank, 3)
        assert one["content"].blocks_per_chunk == 4


def test_the_first_reason_for_slow_kernels_is_told(
    make_engine: MakeEngine, made: list[dict[str, Any]]
) -> None:
    engine = make_engine(spec=SPEC, tp_size=2, mode="gpu")
    pools = GpuPools(engine, engine.geometry(64), threading.Event(), 2)
    pools.require()
    assert pools.slow_kernels == ""
    for rank in range(2):
        pools.make(rank)
    assert pools.slow_kernels == "no compiler"


def test_mla_ranks_store_and_retrieve_the_objects_of_one(make_engine: MakeEngine) -> None:
    mla, mha = make_engine(spec="(1,128,16,1,8):float16:2", tp_size=2), make_engine(tp_size=2)
    assert [kv_rank(mla, rank) for rank in range(2)] == [0, 0]
    assert [kv_rank(mha, rank) for rank in range(2)] == [0, 1]


@pytest.mark.usefixtures("leak_free")
def test_pools_on_the_host_lie_in_segments_of_their_own(make_engine: MakeEngine) -> None:
    engine = make_engine(spec=SPEC, tp_size=2)
    pools = make_pools(engine, engine.geometry(64), b"\0\1", threading.Event(), 2)
    assert isinstance(pools, HostPools)
    assert (list(pools.devices), pools.slow_kernels) == ([], "")
    pools.require()
    names = []
    for rank in range(2):
        pool = pools.make(rank)
        with pool.exported() as handles:
            names.append({handle.shm_name for handle in handles})  # type: ignore[union-attr]
        pool.close()
    assert names[0] != names[1]
    assert all("0001" in name for some in names for name in some)


def test_pools_that_do_not_fit_are_refused_together(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "free_bytes", lambda: 3 * POOL_BYTES)
    monkeypatch.setattr(segment, "available_memory_bytes", lambda: 3 * POOL_BYTES)
    for tp_size, fits in ((3, True), (4, False)):
        engine = make_engine(spec=SPEC, tp_size=tp_size)
        pools = HostPools(engine, engine.geometry(64), b"\0", threading.Event(), tp_size)
        if fits:
            pools.require()
        else:
            with pytest.raises(FatalError, match=str(4 * POOL_BYTES)):
                pools.require()


@pytest.mark.usefixtures("leak_free")
def test_ranks_of_another_client_hold_what_those_of_the_first_do(make_engine: MakeEngine) -> None:
    engine = make_engine(spec=SPEC, tp_size=2)
    pools = make_pools(engine, engine.geometry(64), b"\0\1", threading.Event(), 4)
    made = [pools.make(number) for number in range(4)]
    assert [pool.content.rank for pool in made] == [0, 1, 0, 1]
    for pool in made:
        pool.close()
