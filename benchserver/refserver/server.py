"""Starts an embedded server, runs it until told to stop, and leaves nothing behind.

Order matters at the end: first no more requests, then no more copies, then no more memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from benchserver.clock import NS_PER_S, Clock
from benchserver.errors import FatalError
from benchserver.refserver.config import ServerConfig
from benchserver.refserver.copier import Copier
from benchserver.refserver.core import Core, Handler
from benchserver.refserver.fineclock import FineClock
from benchserver.refserver.gpu.runtime import CudaRuntime
from benchserver.refserver.journal import Journal
from benchserver.refserver.liveness import ReapTimeouts
from benchserver.refserver.meter import Meter
from benchserver.refserver.ops.engine import EngineOps
from benchserver.refserver.ops.lookup import LookupOps
from benchserver.refserver.ops.mapped import MappedOps
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import Registry
from benchserver.refserver.sessions import Sessions
from benchserver.refserver.store.arena import Arena, create_shared, open_private
from benchserver.refserver.store.cache import Cache, CachePolicy
from benchserver.refserver.tiers.backing import Backing
from benchserver.refserver.tiers.url import open_tier
from benchserver.tasks import TaskScope
from protocol.ops import Op

__all__ = ["ServerConfig", "serve"]

HOUSEKEEPING_NS = NS_PER_S
"""Deadlines are minutes away; a second late is early enough."""


async def serve(
    config: ServerConfig,
    *,
    on_ready: Callable[[int, int], None],
    stop: asyncio.Event,
    journal: Callable[[str], None],
    clock: Clock | None = None,
) -> None:
    """Run a server until `stop` is set or this is cancelled.

    `on_ready(rpc_port, http_port)` is called once both ports answer, unless `stop` is set while
    torch is loaded.  `journal` takes the lines of the log, and may not block.  Raises UsageError
    for an unknown fault, before anything is opened, and FatalError if the server cannot start.
    At the end, however it comes, threads, mappings, sockets and the segment are gone, except
    what is stuck in CUDA or still loads torch (`gpu.runtime.must_leave_at_once`).
    """
    # Loaded here: a program that only configures a server needs neither zmq nor aiohttp.
    from benchserver.refserver.faults.board import Switchboard
    from benchserver.refserver.faults.parser import parse_switches
    from benchserver.refserver.front.http import HttpServer
    from benchserver.refserver.front.rpc import RpcServer

    parse_switches(config.faults)
    async with AsyncExitStack() as cleanup:
        core = _open_core(config, clock, journal, cleanup)
        cleanup.callback(_journal_loop_errors(core.journal))
        if core.backing is not None:
            cleanup.push_async_callback(core.backing.close)
        cleanup.callback(core.cuda.stop_waiting)
        if config.gpu and not await _load_cuda(core, stop):
            return
        engine_ops, lookup_ops = EngineOps(core), LookupOps(core)
        cleanup.push_async_callback(lookup_ops.close)
        after_replies = await cleanup.enter_async_context(TaskScope())
        mapped_ops = MappedOps(core, after_replies.start)
        handlers = _handlers(core, lookup_ops, engine_ops, mapped_ops)
        meter = Meter(core.clock)
        rpc = RpcServer(handlers, dialect=config.dialect, journal=core.journal, meter=meter)
        cleanup.callback(rpc.close)
        beside = await cleanup.enter_async_context(TaskScope())
        board = Switchboard(core, handlers, rpc, beside.start)
        board.replace(config.faults)
        http = HttpServer(core, board, meter)
        cleanup.push_async_callback(http.close)
        rpc_port = rpc.bind(config.host, config.port)
        http_port = await http.bind(config.http_host, config.http_port)
        tasks = await cleanup.enter_async_context(TaskScope())
        tasks.start(rpc.run())
        tasks.start(http.run())
        tasks.start(_keep_house(core, engine_ops))
        # Once more: now it comes before the end of all that may wait for a device.
        cleanup.callback(core.cuda.stop_waiting)
        on_ready(rpc_port, http_port)
        await _until(stop, tasks.failure, beside.failure, after_replies.failure)


def _journal_loop_errors(journal: Journal) -> Callable[[], None]:
    """Let what the event loop complains of (no descriptors left, say) be lines of the journal.

    Its own way is a traceback for each.  Returns what undoes this.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def complain(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        cause = "" if error is None else f": {type(error).__name__}: {error}"
        journal.line(f"event loop: {context['message']}{cause}")

    loop.set_exception_handler(complain)
    return lambda: loop.set_exception_handler(before)


def _open_core(
    config: ServerConfig,
    tier_clock: Clock | None,
    journal: Callable[[str], None],
    cleanup: AsyncExitStack,
) -> Core:
    clock = tier_clock or FineClock()
    arena = _open_arena(config)
    cleanup.callback(arena.close)
    cuda = CudaRuntime()
    cleanup.callback(cuda.close)
    registry = Registry(_reap_timeouts(config))
    cleanup.callback(registry.close)
    cleanup.callback(cuda.end_threads)
    copier = Copier()
    cleanup.callback(copier.close)
    cache, lines = Cache(arena.nbytes, _policy(config)), Journal(clock, journal)
    tiers = [open_tier(url, tier_clock) for url in config.l2]
    backing = Backing(
        tiers, cache=cache, arena=arena, clock=clock, journal=lines, write=config.l2_write
    )
    return Core(
        config=config,
        clock=clock,
        journal=lines,
        arena=arena,
        cache=cache,
        sessions=Sessions(_ns(config.session_ttl_s)),
        registry=registry,
        copier=copier,
        cuda=cuda,
        backing=backing if tiers else None,
    )


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _reap_timeouts(config: ServerConfig) -> ReapTimeouts:
    return ReapTimeouts(
        pinged_ns=_ns(config.worker_reap_timeout_s),
        silent_ns=_ns(config.worker_registration_grace_s),
    )


def _policy(config: ServerConfig) -> CachePolicy:
    return CachePolicy(
        read_ttl_ns=_ns(config.l1_read_ttl_s),
        write_ttl_ns=_ns(config.l1_write_ttl_s),
        watermark=config.eviction_trigger_watermark,
        eviction_ratio=config.eviction_ratio,
    )


def _open_arena(config: ServerConfig) -> Arena:
    if config.pool_name:
        return create_shared(config.pool_name, config.l1_bytes)
    return open_private(config.l1_bytes)


async def _load_cuda(core: Core, stop: asyncio.Event) -> bool:
    """Do now what the first GPU client's registration would do; FatalError if it cannot be.

    Returns False if the server is told to stop meanwhile: nothing ends an import of torch.
    """
    loading = asyncio.create_task(core.cuda.loader.run(core.cuda.load, core.arena))
    try:
        await _until(stop, loading)
    finally:
        loading.cancel()
        await asyncio.wait([loading])
    if stop.is_set():
        if not loading.cancelled():
            loading.exception()  # looked at, and dropped
        return False
    try:
        line = loading.result()
    except RefusalError as error:
        raise FatalError(f"--gpu: {error}") from error
    if line:
        core.journal.line(line)
    return True


def _handlers(
    core: Core, lookup_ops: LookupOps, engine_ops: EngineOps, mapped_ops: MappedOps
) -> dict[Op, Handler]:
    """Return the handlers of the modes that are served; a missing one is the refusal."""
    handlers = dict(lookup_ops.table())
    if core.config.serves_mapped:
        handlers.update(mapped_ops.table())
    if core.config.serves_engine_driven:
        handlers.update(engine_ops.table())
    if Op.UNREGISTER_ENGINE_DRIVEN not in core.config.dialect.ops:
        handlers[Op.UNREGISTER_KV_CACHE] = engine_ops.unregister
    return handlers


async def _keep_house(core: Core, engine_ops: EngineOps) -> None:
    while True:
        await core.clock.sleep_ns(HOUSEKEEPING_NS)
        now_ns = core.clock.now_ns()
        core.cache.expire(now_ns)
        core.sessions.expire(now_ns)
        engine_ops.expire(now_ns)
        core.cuda.leaving.retry()
        mapped, engine = core.registry.stale(now_ns)
        for instance_id in mapped:
            core.journal.line(f"instance {instance_id} fell silent and is unregistered")
            core.registry.remove_mapped(instance_id)
        for instance_id in engine:
            core.journal.line(f"instance {instance_id} fell silent and is unregistered")
            engine_ops.drop_instance(instance_id)


async def _until(stop: asyncio.Event, *others: asyncio.Future[Any]) -> None:
    """Wait for the stop, or for the first of the others that is done."""
    stopped = asyncio.create_task(stop.wait())
    ends: list[asyncio.Future[Any]] = [stopped, *others]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
