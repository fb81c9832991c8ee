"""A registered client whose KV tensors lie on a GPU: the twin of `host.instance`.

Everything that touches the device is submitted to the instance's own stream, from its own thread:
a client whose events never complete may hold up both, and nobody else.  Memory is unmapped only
when nothing is under way: a stream that does not come to its end keeps it until the process ends.

A client that was killed stays registered until it is reaped, as with the real server; its GPU
memory is taken until then, for CUDA frees what is mapped elsewhere only after the last unmapping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from benchserver.clock import NS_PER_MS, NS_PER_S, Clock
from benchserver.refserver.copier import Copier
from benchserver.refserver.gpu.device import drop_frames, refusing
from benchserver.refserver.gpu.memory import CudaDescriptor
from benchserver.refserver.gpu.runtime import CudaRuntime
from benchserver.refserver.gpu.stream import MAX_OPENED_EVENTS, Submitted, check_event_handle
from benchserver.refserver.gpu.work import BUSY, DeviceWork
from benchserver.refserver.instance import Blocks, Digest, Pending, Transfer
from benchserver.refserver.liveness import Liveness
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.uses import UseCount
from protocol.messages import TransferResult

T = TypeVar("T")

MAX_UNDER_WAY = MAX_OPENED_EVENTS
"""Transfers of one client that wait for its events; a worker has a handful."""

LEAVE_WITHIN_NS = 2 * NS_PER_S
"""How long a client that leaves waits for its transfers, and then for the unmapping."""

_LEAVE_POLL_NS = NS_PER_MS

_STAYS_MAPPED = (
    "a client's GPU memory stays mapped after it left, until its transfers have ended and "
    "no client's stream waits for an event that does not complete"
)

Submit = Callable[[bytes, Sequence[ObjectCopy]], Submitted]


class CudaInstance:
    """A client whose GPU memory the server has mapped (lmcache_driven)."""

    failed = TransferResult(event=b"", ok=False)
    """No work was submitted, so there is no event either."""

    def __init__(
        self,
        work: DeviceWork,
        *,
        model_name: str,
        world_size: int,
        layout: KvLayout,
        thread: Copier,
        runtime: CudaRuntime,
        unmap: Callable[[], None],
        now_ns: int,
    ) -> None:
        """`unmap` lets go of the tensors' memory; it is called once nothing refers to them here.

        `thread`, a single one, is for what touches the device.
        """
        self.model_name = model_name
        self.world_size = world_size
        self.layout = layout
        self.num_blocks = work.num_blocks
        self.liveness = Liveness(last_seen_ns=now_ns)
        self.uses = UseCount(self._let_go)
        self.thread = thread
        self.blocks: Blocks = work
        self.gone: Future[None] | None = None
        """Done when the memory is unmapped; None: it is in use."""
        self._work = work
        self._runtime = runtime
        self._unmap = unmap

    def checked_event(self, event: bytes | memoryview) -> bytes:
        """Return the handle that a request carries; RefusalError for what cannot be one."""
        handle = bytes(event)
        check_event_handle(handle)
        return handle

    async def store(self, event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Submit copies of pages into chunk objects; without any, the event is complete already."""
        if not copies:
            return await self._done()
        return await self._submitted(self._work.submit_store, event, copies)

    async def retrieve(self, event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Submit copies of chunk objects into pages."""
        return await self._submitted(self._work.submit_retrieve, event, copies)

    async def _submitted(
        self, submit: Submit, event: bytes, copies: Sequence[ObjectCopy]
    ) -> Transfer:
        if self.uses.count >= MAX_UNDER_WAY:
            raise RefusalError(f"a client has {MAX_UNDER_WAY} transfers under way")
        with ExitStack() as failed:
            self.uses.begin()
            failed.callback(self.uses.end)
            submitted = await self.thread.run(submit, event, copies)
            failed.pop_all()
        return Transfer(
            answer=TransferResult(event=submitted.handle, ok=True),
            pending=Pending(is_done=submitted.is_done, release=self.uses.end),
        )

    async def _done(self) -> Transfer:
        """Return a transfer that is done already, with an event that has completed."""
        with self.uses.in_use():
            submitted = await self.thread.run(self._work.submit_nothing)
            await self._until(submitted.is_done)
        return Transfer(answer=TransferResult(event=submitted.handle, ok=True))

    async def digests(
        self, digest: Digest[T], block_ids: Sequence[int], blocks_per_chunk: int
    ) -> T:
        """Return what a digest makes of the layers, once all transfers are done."""
        with self.uses.in_use():
            await self.until_idle()
            hashers = self._runtime.hashers
            return await hashers.run(self._work.hashed, digest, block_ids, blocks_per_chunk)

    async def until_idle(self) -> None:
        """Wait until all is done that the client ordered; RefusalError if that takes too long."""
        await self._until(self._work.is_idle)

    async def _until(self, is_done: Callable[[], bool]) -> None:
        if not await self._runtime.watcher.ended(is_done):
            raise RefusalError(BUSY)

    async def leave(self, clock: Clock) -> str:
        """Unmap the tensors once the transfers have ended: soon, or else when they do."""
        deadline_ns = clock.now_ns() + LEAVE_WITHIN_NS
        while self.uses.count and clock.now_ns() < deadline_ns:
            await clock.sleep_ns(_LEAVE_POLL_NS)
        self.uses.close()
        if self.gone is not None:
            gone = asyncio.wrap_future(self.gone)
            await asyncio.wait([gone], timeout=LEAVE_WITHIN_NS / NS_PER_S)
            if gone.done():
                gone.result()
                return ""
        return _STAYS_MAPPED

    def _let_go(self) -> None:
        self.thread.close(0)
        self.gone = self._runtime.leaving.add(self._has_ended, self._drop)

    def _has_ended(self) -> bool:
        return self.thread.is_idle and self._work.is_idle()

    def _drop(self) -> None:
        self._work.drop()
        self._unmap()


def open_instance(
    cuda: CudaRuntime,
    handles: Sequence[CudaDescriptor],
    layout: KvLayout,
    *,
    model_name: str,
    world_size: int,
    thread: Copier,
    now_ns: int,
) -> CudaInstance:
    """Map a client's tensors, and run every kernel once; belongs in `thread`, the client's own.

    Raises RefusalError without the device or the memory.
    """
    memory, stream = cuda.open(handles)
    work = instance = None
    try:
        with refusing("the KV tensors cannot be used"):
            work = DeviceWork(
                layout=layout,
                dtypes=[handle.dtype for handle in handles],
                tensors=memory.tensors,
                stream=stream,
                stopping=cuda.stopping,
            )
            instance = CudaInstance(
                work,
                model_name=model_name,
                world_size=world_size,
                layout=layout,
                thread=thread,
                runtime=cuda,
                unmap=partial(cuda.unmap, memory),
                now_ns=now_ns,
            )
            work.warm_up()
    except BaseException as error:
        work = instance = None
        drop_frames(error)
        cuda.leave(memory)
        raise
    return instance
