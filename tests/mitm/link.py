"""What a fault may do with one request: pass it on, answer it, look at and alter memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from protocol import codec
from protocol.dialects import V056
from protocol.handles import CPU_EVENT_STUB
from protocol.keys import CacheKey
from protocol.messages import Incoming, TransferResult
from protocol.ops import Op
from tests.mitm.memory import ClientMemory, Tables, Tensor

Frames = tuple[bytes, ...]
DONE = TransferResult(event=CPU_EVENT_STUB, ok=True)
MAX_STORES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSeen:
    """A STORE that passed, with the bytes that it stored."""

    key: CacheKey
    instance_id: int
    data: list[Tensor]


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What the proxy remembers over all its connections."""

    chunk_tokens: int
    memories: dict[int, ClientMemory] = field(default_factory=dict)
    pools: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)
    stores: list[StoreSeen] = field(default_factory=list)
    lookups: dict[str, tuple[CacheKey, int]] = field(default_factory=dict)
    turns: dict[Op, int] = field(default_factory=dict)
    debts: list[tuple[Op, tuple[Any, ...]]] = field(default_factory=list)
    """Calls that were swallowed, and are made when the proxy ends, for the server's sake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way; `turn` counts the requests of its operation, from 0."""

    frames: Frames
    request: Incoming
    turn: int
    ledger: Ledger
    pass_on: Callable[[Frames], Awaitable[Frames]]
    send_back: Callable[[Frames], Awaitable[None]]
    ask: Callable[..., Awaitable[Any]]
    delay_s: float
    kill: Callable[[], None]

    @property
    def args(self) -> Sequence[Any]:
        """Return the decoded payload."""
        return self.request.args

    @property
    def key(self) -> CacheKey:
        """Return the key, for operations that start with one."""
        key: CacheKey = self.args[0]
        return key

    @property
    def instance_id(self) -> int:
        """Return the instance id that follows the key."""
        return int(self.args[1])

    @property
    def tables(self) -> Tables:
        """Return the block tables of a STORE or RETRIEVE."""
        tables: Tables = self.args[2]
        return tables

    @property
    def skip_tokens(self) -> int:
        """Return how many first tokens a RETRIEVE is to skip."""
        return int(self.args[-1])

    @property
    def memory(self) -> ClientMemory:
        """Return the client's memory of the instance in the request."""
        return self.ledger.memories[self.instance_id]

    @property
    def is_last_rank(self) -> bool:
        """Tell whether the request's instance is the last rank: the highest instance id."""
        return self.instance_id == max(self.ledger.memories)

    def chunk_tables(self, first: int, end: int) -> Tables:
        """Return the part of the block tables that belongs to chunks `[first, end)`."""
        chunks = (self.key.end - self.key.start) // self.ledger.chunk_tokens
        parts = [len(ids) // chunks for ids in self.tables]
        return [ids[first * n : end * n] for ids, n in zip(self.tables, parts, strict=True)]

    async def forward(self) -> Frames:
        """Send the request on as it came, and return the reply's frames."""
        return await self.pass_on(self.frames)

    async def forward_as(self, *args: Any) -> Frames:
        """Send the request on with another payload, and return the reply's frames."""
        uid = msgpack.unpackb(self.frames[0])
        return await self.pass_on(codec.encode_request(V056, uid, self.request.op, args))

    async def reply(self, frames: Frames) -> None:
        """Send frames to the client."""
        await self.send_back(frames)

    async def answer(self, result: Any) -> None:
        """Send the client a well-formed reply with this result."""
        await self.send_back(codec.encode_reply(V056, self.request, result))

    def result_of(self, frames: Frames) -> Any:
        """Return the decoded result in a reply to this request."""
        return codec.decode_result(V056.ops[self.request.op], self.request.op, frames)

    def owe(self) -> None:
        """Remember this request, which is swallowed, to be made when the proxy ends."""
        self.ledger.debts.append((self.request.op, tuple(self.args)))


Handler = Callable[[Call], Awaitable[None]]


async def pass_through(call: Call) -> None:
    """Do no harm."""
    await call.reply(await call.forward())
