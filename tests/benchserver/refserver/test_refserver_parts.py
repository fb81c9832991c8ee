"""The small parts: configuration, journal, task scope, copier, engine registrations."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.errors import UsageError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.journal import MAX_LINES_A_WINDOW, Journal
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import (
    REAP_PINGED_NS,
    REAP_SILENT_NS,
    Liveness,
    parse_engine_instance,
)
from benchserver.refserver.tasks import TaskScope


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"l1_bytes": 0}, "l1_bytes is 0"),
        ({"port": 65536}, "port is 65536"),
        ({"http_port": -1}, "http_port is -1"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"transfer_mode": "both"}, "transfer_mode is 'both'"),
        ({"shm_name": "a/b"}, "shm_name is 'a/b'"),
    ],
)
def test_bad_configurations(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ServerConfig(**{"l1_bytes": 1 << 20, **fields})


def test_only_engine_driven_servers_have_a_pool() -> None:
    def pool(mode: Any) -> str:
        return ServerConfig(l1_bytes=4096, transfer_mode=mode, shm_name="x").pool_name

    assert [pool(m) for m in ("auto", "engine_driven", "lmcache_driven")] == [
        "lmcache_l1_pool_x",
        "lmcache_l1_pool_x",
        "",
    ]


def test_a_flood_of_lines_is_counted_instead() -> None:
    clock, lines = VirtualClock(), list[str]()
    journal = Journal(clock, lines.append)
    for number in range(MAX_LINES_A_WINDOW + 5):
        journal.line(f"{number}\n{'x' * 1000}")
    assert len(lines) == MAX_LINES_A_WINDOW
    assert all("\n" not in line and len(line) < 500 for line in lines)
    asyncio.run(clock.sleep_ns(NS_PER_S))
    journal.line("later")
    assert lines[-2:] == [
        "embedded server: 5 more lines were not shown",
        "embedded server: later",
    ]


def test_a_scope_cancels_its_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def main() -> None:
        async with TaskScope() as scope:
            scope.start(work("a"))
            scope.start(work("b"))
            await asyncio.sleep(0)

    asyncio.run(main())
    assert sorted(ended) == ["a", "b"]


def test_a_scope_raises_the_first_failure() -> None:
    async def fail() -> None:
        raise LookupError("first")

    async def main() -> None:
        async with TaskScope() as scope:
            scope.start(fail())
            await scope.failure

    with pytest.raises(LookupError, match="first"):
        asyncio.run(main())


def test_a_cancelled_copy_returns_when_its_thread_has_ended() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        release.wait(10)
        ended.set()

    async def main() -> None:
        copier = Copier()
        task = asyncio.create_task(copier.run(copy))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        copier.close()

    asyncio.run(main())


def test_liveness_is_shorter_after_a_ping() -> None:
    silent, pinged = Liveness(last_seen_ns=0), Liveness(last_seen_ns=0, pinged=True)
    assert [pinged.is_stale(t) for t in (REAP_PINGED_NS, REAP_PINGED_NS + 1)] == [False, True]
    assert [silent.is_stale(t) for t in (REAP_SILENT_NS, REAP_SILENT_NS + 1)] == [False, True]


GOOD: dict[str, Any] = {
    "instance_id": 7,
    "model_name": "m",
    "world_size": 1,
    "block_size": 16,
    "num_layers": 2,
    "hidden_dim_size": 6,
    "dtype_str": "float16",
    "use_mla": False,
}


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({}, (2, 2, 32, 6)),
        ({"use_mla": True}, (2, 32, 6)),
        ({"num_physical_slots": 8}, (2, 2, 8, 6)),
        ({"num_physical_slots": None, "unknown": 1}, (2, 2, 32, 6)),
    ],
)
def test_engine_object_shapes(fields: dict[str, Any], shape: tuple[int, ...]) -> None:
    instance_id, instance = parse_engine_instance({**GOOD, **fields}, chunk_size=32, now_ns=0)
    assert (instance_id, instance.shape) == (7, shape)


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "7"},
        {"model_name": None},
        {"world_size": 0},
        {"num_layers": True},
        {"num_layers": 2**40, "hidden_dim_size": 2**40},
        {"hidden_dim_size": -1},
        {"dtype_str": "complex128"},
        {"dtype_str": ["float16"]},
        {"use_mla": 1},
        {"num_physical_slots": 0},
    ],
)
def test_bad_engine_registrations(fields: dict[str, Any]) -> None:
    with pytest.raises(RefusalError):
        parse_engine_instance({**GOOD, **fields}, chunk_size=32, now_ns=0)
