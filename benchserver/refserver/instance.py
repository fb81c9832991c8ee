"""A client whose KV tensors the server has mapped: what the handlers ask of it.

`host.instance` has the one on the host, `gpu.instance` the one on a GPU.  A client on the host is
answered when its copies are done; one on a GPU when they are submitted, with an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from benchserver.clock import Clock
from benchserver.refserver.copier import Copier
from benchserver.refserver.liveness import Liveness
from benchserver.refserver.pages.checksums import BlockSource
from benchserver.refserver.pages.layout import KvLayout
from benchserver.refserver.pages.transfer import ObjectCopy, Pages
from benchserver.refserver.uses import UseCount
from protocol.messages import TransferResult

T = TypeVar("T")

Digest = Callable[[Sequence[BlockSource], Sequence[int], int], T]
"""A function of `checksums`: of layers, block ids and the number of blocks in a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Copies that go on behind a reply; the client's memory is in use until `release`."""

    is_done: Callable[[], bool]
    """Raises RefusalError if the device failed."""
    release: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A transfer whose client can be answered; `pending` None: all of it is done."""

    answer: TransferResult
    pending: Pending | None = None


class Blocks(Protocol):
    """A client's tensors, block by block, as [plane][block][slot][head][element].

    A GPU may take its time, so all three belong in the instance's thread.
    """

    def order_after(self, event: bytes) -> None:
        """Let what is done from now on come after a client's event."""
        ...

    def read(self, layer: int, block_ids: Sequence[int]) -> Pages:
        """Return a copy of blocks, once all that was submitted is done."""
        ...

    def write(self, layer: int, block_ids: Sequence[int], data: Pages) -> None:
        """Replace blocks, behind all that was submitted; return when it is done."""
        ...


class Instance(Protocol):
    """A client whose KV tensors the server has mapped (lmcache_driven)."""

    model_name: str
    world_size: int
    layout: KvLayout
    num_blocks: int
    """Of the tensor that has the fewest."""
    failed: TransferResult
    """The answer of a transfer that was not begun."""
    liveness: Liveness
    uses: UseCount
    thread: Copier
    """For what touches its memory and may take a while."""
    blocks: Blocks

    def checked_event(self, event: bytes | memoryview) -> bytes:
        """Return the event that a transfer comes after; RefusalError for what cannot be one."""
        ...

    async def store(self, event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Copy pages into chunk objects, behind a client's event; of no copies, all is done."""
        ...

    async def retrieve(self, event: bytes, copies: Sequence[ObjectCopy]) -> Transfer:
        """Copy chunk objects into pages, behind a client's event."""
        ...

    async def digests(
        self, digest: Digest[T], block_ids: Sequence[int], blocks_per_chunk: int
    ) -> T:
        """Return what a digest makes of the layers, once all transfers are done."""
        ...

    async def leave(self, clock: Clock) -> str:
        """Unmap the memory, soon, or else when its last use ends.

        Returns a line for the journal if it stays mapped for longer, or "".
        """
        ...
