"""Transfers that go on behind their replies, as those of GPU clients do.

Their objects and the client's memory stay in use until they have ended.  A STORE is committed then,
and dropped if that takes too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from benchserver.clock import NS_PER_S
from benchserver.refserver.core import Core
from benchserver.refserver.gpu.stream import DONE_WITHIN_NS
from benchserver.refserver.instance import Pending
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.store.slots import ObjectSlot

_STUCK_POLL_NS = NS_PER_S


class PendingTransfers:
    """What is done when they have ended."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def end_store(self, pending: Pending, slots: Sequence[ObjectSlot]) -> None:
        """Commit what was stored, or drop it; its memory stays taken until the device is done."""
        cache, landed = self._core.cache, False
        try:
            landed = await self._has_landed(pending, "STORE")
        finally:
            if landed:
                self._core.commit(slots)
                pending.release()
            else:
                # The device may still write there: nobody may find it, nor be given the memory.
                cache.hold(slots)
                cache.abort(slots)
        if not landed:
            await self._until_ended(pending)
            cache.end_read(slots)
            pending.release()

    async def end_retrieve(self, pending: Pending, reading: ExitStack) -> None:
        """End the read of the objects once the device is done."""
        if not await self._has_landed(pending, "RETRIEVE"):
            await self._until_ended(pending)
        pending.release()
        reading.close()

    async def _has_landed(self, pending: Pending, what: str) -> bool:
        """Wait until a transfer has ended; False, and a line, if it failed or takes too long."""
        try:
            landed = await self._core.cuda.watcher.ended(pending.is_done)
        except RefusalError as error:
            self._core.journal.line(f"{what}: failed on the GPU after its reply: {error}")
            return False
        if not landed:
            self._core.journal.line(
                f"{what}: not done on the GPU {DONE_WITHIN_NS // NS_PER_S} s after its reply; "
                "has the client's event completed? its memory stays taken until then"
            )
        return landed

    async def _until_ended(self, pending: Pending) -> None:
        """Wait for a transfer that is late, as long as the server runs."""
        try:
            while not await self._core.cuda.watcher.ended(pending.is_done, within_ns=0):
                await self._core.clock.sleep_ns(_STUCK_POLL_NS)
        except RefusalError:
            return  # the device has failed: nothing will run there any more
