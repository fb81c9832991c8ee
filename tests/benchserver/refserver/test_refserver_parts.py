"""The small parts: configuration, journal, task scope, copier, engine registrations."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from benchserver.clock import NS_PER_S, VirtualClock
from benchserver.errors import UsageError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import MAX_THREADS, Copier
from benchserver.refserver.journal import MAX_LINES_A_WINDOW, Journal
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import parse_engine_instance
from benchserver.refserver.server import serve
from benchserver.refserver.tasks import TaskScope


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"l1_bytes": 0}, "--l1-size-gb gives 0 bytes"),
        ({"host": ""}, "--host is ''"),
        ({"http_host": "a b"}, "--http-host is 'a b'"),
        ({"http_host": "a\0b"}, "--http-host is 'a.x00b'"),
        ({"host": "\u00e9"}, "--host is"),
        ({"port": 65536}, "--port is 65536"),
        ({"http_port": -1}, "--http-port is -1"),
        ({"chunk_size": 0}, "--chunk-size is 0"),
        ({"transfer_mode": "both"}, "--supported-transfer-mode is 'both'"),
        ({"shm_name": "a/b"}, "--shm-name is 'a/b'"),
        ({"session_ttl_s": 0.0}, "--session-ttl-seconds is 0.0"),
        ({"l1_write_ttl_s": 0}, "--l1-write-ttl-seconds is 0"),
        ({"l1_read_ttl_s": -1}, "--l1-read-ttl-seconds is -1"),
        ({"l1_read_ttl_s": 10**9}, "--l1-read-ttl-seconds is 1000000000"),
        ({"worker_reap_timeout_s": -1.0}, "--worker-reap-timeout-seconds is -1.0"),
        ({"worker_reap_timeout_s": 0.5}, "--worker-reap-timeout-seconds is 0.5"),
        ({"worker_reap_timeout_s": float("nan")}, "--worker-reap-timeout-seconds is nan"),
        ({"worker_registration_grace_s": 119.0}, "--worker-registration-grace-seconds is 119.0"),
        ({"eviction_trigger_watermark": 1.1}, "--eviction-trigger-watermark is 1.1"),
        ({"eviction_ratio": float("nan")}, "--eviction-ratio is nan"),
        ({"l2": ("mock://1/",), "l2_write": "back"}, "--l2-write is 'back'"),
        ({"l2_write": "evict"}, "there is no L2"),
    ],
)
def test_bad_configurations(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ServerConfig(**{"l1_bytes": 1 << 20, **fields})


@pytest.mark.parametrize("token", ["secret token", "secret\n", "s\u00e9cret", "secret" * 1000])
def test_a_bad_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(UsageError, match="the HTTP token must be") as caught:
        ServerConfig(l1_bytes=1 << 20, http_token=token)
    assert "cret" not in str(caught.value)


def test_a_configuration_does_not_show_its_token() -> None:
    assert "cret" not in repr(ServerConfig(l1_bytes=1 << 20, http_token="secret"))


def test_only_engine_driven_servers_have_a_pool() -> None:
    def pool(mode: Any) -> str:
        return ServerConfig(l1_bytes=4096, transfer_mode=mode, shm_name="x").pool_name

    assert [pool(m) for m in ("auto", "engine_driven", "lmcache_driven")] == [
        "lmcache_l1_pool_x",
        "lmcache_l1_pool_x",
        "",
    ]


@pytest.mark.asyncio
async def test_a_flood_of_lines_is_counted_instead() -> None:
    clock, lines = VirtualClock(), list[str]()
    journal = Journal(clock, lines.append)
    for number in range(MAX_LINES_A_WINDOW + 5):
        journal.line(f"{number}\n{'x' * 1000}")
    assert len(lines) == MAX_LINES_A_WINDOW
    assert all("\n" not in line and len(line) < 500 for line in lines)
    await clock.sleep_ns(NS_PER_S)
    journal.line("later")
    assert lines[-2:] == [
        "embedded server: 5 more lines were not shown",
        "embedded server: later",
    ]


@pytest.mark.asyncio
async def test_a_scope_cancels_its_tasks_and_waits_for_them() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async with TaskScope() as scope:
        scope.start(work("a"))
        scope.start(work("b"))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_scope_raises_the_first_failure() -> None:
    async def fail() -> None:
        raise LookupError("first")

    async def fail_in_a_scope() -> None:
        async with TaskScope() as scope:
            scope.start(fail())
            await scope.failure

    with pytest.raises(LookupError, match="first"):
        await fail_in_a_scope()


@pytest.mark.asyncio
async def test_a_cancelled_copy_returns_when_its_thread_has_ended() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        release.wait(10)
        ended.set()

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


@pytest.mark.asyncio
async def test_a_copy_cancelled_twice_still_waits_for_its_thread() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        release.wait(10)
        ended.set()

    copier = Copier()
    task = asyncio.create_task(copier.run(copy))
    await asyncio.to_thread(started.wait, 10)
    for _ in range(3):
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.02)
        assert not done
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    copier.close()


@pytest.mark.asyncio
async def test_a_copy_that_is_cancelled_before_it_begins_never_does() -> None:
    release, late = threading.Event(), threading.Event()

    copier = Copier()
    running = [asyncio.create_task(copier.run(release.wait, 10)) for _ in range(MAX_THREADS)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(copier.run(late.set))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    release.set()
    await asyncio.gather(*running)
    copier.close()
    assert not late.is_set()


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


@pytest.mark.asyncio
async def test_what_the_event_loop_complains_of_is_a_line() -> None:
    lines: list[str] = []

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_ready(*_: int) -> None:
        loop.call_exception_handler(
            {"message": "socket.accept() out of system resource", "exception": OSError("full")}
        )
        stop.set()

    before = loop.get_exception_handler()
    config = ServerConfig(l1_bytes=1 << 20)
    await serve(config, on_ready=on_ready, stop=stop, journal=lines.append)
    assert loop.get_exception_handler() is before
    assert lines == [
        "embedded server: event loop: socket.accept() out of system resource: OSError: full"
    ]
