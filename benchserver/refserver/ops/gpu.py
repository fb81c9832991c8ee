"""STORE, RETRIEVE and registration of GPU clients: what is done, and what comes after the reply.

A transfer is submitted in a thread and answered at once, with an event's handle.  Its objects and
the client's memory stay in use until that event has completed; a STORE is committed then, and is
dropped if that takes too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.core import Core
from benchserver.refserver.gpu.device import drop_frames, refusing
from benchserver.refserver.gpu.instance import BUSY, CudaHashedLayer, CudaInstance
from benchserver.refserver.gpu.stream import (
    DONE_WITHIN_NS,
    MAX_OPENED_EVENTS,
    Landing,
    check_event_handle,
)
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.cache import Slot
from protocol.handles import CudaHandle, CudaRawHandle, KvHandle
from protocol.messages import TransferResult

T = TypeVar("T")

Start = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine beside the handlers, until the server stops."""

FAILED = TransferResult(event=b"", ok=False)
"""No work was submitted, so there is no event either."""

MAX_UNDER_WAY = MAX_OPENED_EVENTS
"""Transfers of one client that wait for its events; a worker has a handful."""

_RETIRE_WITHIN_NS = 2 * NS_PER_S
_RETIRE_POLL_NS = NS_PER_MS
_STUCK_POLL_NS = NS_PER_S


def are_cuda(handles: Sequence[KvHandle]) -> bool:
    """Tell whether tensors lie on a GPU; RefusalError if only some of them do."""
    on_gpu = sum(isinstance(handle, CudaHandle | CudaRawHandle) for handle in handles)
    if 0 < on_gpu < len(handles):
        raise RefusalError(f"{on_gpu} of {len(handles)} KV tensors lie on a GPU, expected all")
    return on_gpu > 0


class CudaTransfers:
    """What `mapped` does for GPU clients."""

    def __init__(self, core: Core, start: Start) -> None:
        self._core = core
        self._start = start

    async def open_instance(
        self, handles: Sequence[KvHandle], layout: KvLayout, *, model_name: str, world_size: int
    ) -> CudaInstance:
        """Map a client's tensors; RefusalError without torch, its device or its memory."""
        core, cuda = self._core, self._core.cuda
        described = [h for h in handles if isinstance(h, CudaHandle | CudaRawHandle)]
        now_ns = core.clock.now_ns()
        thread = cuda.client_thread()

        def make() -> CudaInstance:
            memory, stream = cuda.open(described)
            instance = None
            try:
                with refusing("the KV tensors cannot be used"):
                    instance = CudaInstance(
                        model_name=model_name,
                        world_size=world_size,
                        layout=layout,
                        dtypes=[handle.dtype for handle in described],
                        tensors=memory.tensors,
                        stream=stream,
                        thread=thread,
                        stopping=cuda.stopping,
                        leave=cuda.leaving.add,
                        unmap=partial(cuda.unmap, memory),
                        now_ns=now_ns,
                    )
                    instance.warm_up()
            except BaseException as error:
                instance = None
                drop_frames(error)
                cuda.leave(memory)
                raise
            return instance

        line = await core.cuda.loader.run(cuda.load, core.arena)
        if line:
            core.journal.line(line)
        try:
            instance = await thread.run(make)
        except BaseException:
            thread.close(0)
            raise
        try:
            await until_idle(core, instance)
        except BaseException:
            instance.close()
            raise
        return instance

    async def close_instance(self, instance: CudaInstance) -> None:
        """Unmap a client's tensors once its transfers have ended; soon, or else when they do."""
        clock = self._core.clock
        deadline_ns = clock.now_ns() + _RETIRE_WITHIN_NS
        while instance.tenancy.users and clock.now_ns() < deadline_ns:
            await clock.sleep_ns(_RETIRE_POLL_NS)
        instance.close()
        if instance.gone is not None:
            gone = asyncio.wrap_future(instance.gone)
            await asyncio.wait([gone], timeout=_RETIRE_WITHIN_NS / NS_PER_S)
            if gone.done():
                return gone.result()
        self._core.journal.line(
            "a client's GPU memory stays mapped after it left, until its transfers have ended and "
            "no client's stream waits for an event that does not complete"
        )
        return None

    async def done(self, instance: CudaInstance) -> TransferResult:
        """Return the answer of a transfer that has nothing to do."""
        return await done(self._core, instance)

    async def store(
        self,
        instance: CudaInstance,
        event: bytes,
        copies: Sequence[ObjectCopy],
        slots: Sequence[Slot],
    ) -> TransferResult:
        """Submit a STORE into reserved slots, which are committed, or aborted, later."""
        with ExitStack() as failed:
            failed.callback(self._core.cache.abort, slots)
            self._use(instance, failed)
            landing = await instance.thread.run(instance.submit_store, event, copies)
            failed.pop_all()
        self._start(self._end_store(instance, landing, slots))
        return TransferResult(event=landing.handle, ok=True)

    async def retrieve(
        self, instance: CudaInstance, event: bytes, copies: Sequence[ObjectCopy], reading: ExitStack
    ) -> TransferResult:
        """Submit a RETRIEVE; `reading` ends the read of its objects, and is closed later."""
        with reading.pop_all() as failed:
            self._use(instance, failed)
            landing = await instance.thread.run(instance.submit_retrieve, event, copies)
            held = failed.pop_all()
        self._start(self._end_retrieve(landing, held))
        return TransferResult(event=landing.handle, ok=True)

    @staticmethod
    def _use(instance: CudaInstance, until: ExitStack) -> None:
        if instance.tenancy.users >= MAX_UNDER_WAY:
            raise RefusalError(f"a client has {MAX_UNDER_WAY} transfers under way")
        instance.tenancy.begin()
        until.callback(instance.tenancy.end)

    async def _end_store(
        self, instance: CudaInstance, landing: Landing, slots: Sequence[Slot]
    ) -> None:
        cache, landed = self._core.cache, False
        try:
            landed = await self._has_landed(landing, "STORE")
        finally:
            if landed:
                self._core.commit(slots)
                instance.tenancy.end()
            else:
                # The device may still write there: nobody may find it, nor be given the memory.
                cache.hold(slots)
                cache.abort(slots)
        if not landed:
            await self._until_ended(landing)
            cache.end_read(slots)
            instance.tenancy.end()

    async def _end_retrieve(self, landing: Landing, held: ExitStack) -> None:
        if not await self._has_landed(landing, "RETRIEVE"):
            await self._until_ended(landing)
        held.close()

    async def _has_landed(self, landing: Landing, what: str) -> bool:
        """Wait until a transfer has ended; False, and a line, if it failed or takes too long."""
        try:
            landed = await self._core.cuda.watcher.ended(landing.is_done)
        except RefusalError as error:
            self._core.journal.line(f"{what}: failed on the GPU after its reply: {error}")
            return False
        if not landed:
            self._core.journal.line(
                f"{what}: not done on the GPU {DONE_WITHIN_NS // NS_PER_S} s after its reply; "
                "has the client's event completed? its memory stays taken until then"
            )
        return landed

    async def _until_ended(self, landing: Landing) -> None:
        """Wait for a transfer that is late, as long as the server runs."""
        try:
            while not await self._core.cuda.watcher.ended(landing.is_done, within_ns=0):
                await self._core.clock.sleep_ns(_STUCK_POLL_NS)
        except RefusalError:
            return  # the device has failed: nothing will run there any more


async def until_idle(core: Core, instance: CudaInstance) -> None:
    """Wait until all is done that a client ordered; RefusalError if that takes too long."""
    if not await core.cuda.watcher.ended(instance.is_idle):
        raise RefusalError(BUSY)


async def done(core: Core, instance: CudaInstance) -> TransferResult:
    """Return the answer of a transfer that is done already: with an event that has completed."""
    with instance.in_use():
        landing = await instance.thread.run(instance.submit_nothing)
        if not await core.cuda.watcher.ended(landing.is_done):
            raise RefusalError(BUSY)
    return TransferResult(event=landing.handle, ok=True)


async def hashed(
    core: Core,
    instance: CudaInstance,
    digest: Callable[[Sequence[CudaHashedLayer], Sequence[int], int], T],
    block_ids: Sequence[int],
    blocks_per_chunk: int,
) -> T:
    """Return what a function of `checksums` makes of a client's layers, once transfers are done."""
    with instance.in_use():
        await until_idle(core, instance)
        return await core.cuda.hashers.run(instance.hashed, digest, block_ids, blocks_per_chunk)


def checked_event(event: bytes | memoryview) -> bytes:
    """Return the handle that a request carries; RefusalError for what cannot be one."""
    handle = bytes(event)
    check_event_handle(handle)
    return handle
