"""A whole embedded server in this process, what asks its HTTP API, and a client of its ZMQ side."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp
import zmq
import zmq.asyncio

from benchserver.clock import NS_PER_S, Clock
from benchserver.refserver.server import ServerConfig, serve
from protocol.dialect import Dialect
from protocol.dialects import V056
from protocol.inline.tensor import InlineTensor
from protocol.inline.writing import encode_tensor_list
from protocol.keys import CacheKey
from protocol.messages import VOID, Reply, RetrievePlan
from protocol.ops import Op
from protocol.session import ClientSession

CHUNK = 32
HIDDEN = 6
LAYERS = 2
SHAPE = (2, LAYERS, CHUNK, HIDDEN)
OBJECT_BYTES = 2 * 2 * LAYERS * CHUNK * HIDDEN
WITHIN_S = 30.0
WITHIN_NS = 10 * NS_PER_S
MODEL = "m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer; `document` is its text if that is no JSON."""

    status: int
    headers: dict[str, str]
    document: Any


@dataclass(slots=True, kw_only=True)
class Site:
    """A running server."""

    rpc_port: int
    http_port: int
    http: aiohttp.ClientSession
    lines: list[str] = field(default_factory=list)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | BytesIO | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        async with self.http.request(
            method, path, json=body, data=data, headers=headers
        ) as response:
            text = (await response.read()).decode("utf-8", "replace")
            try:
                document = json.loads(text)
            except ValueError:
                document = text
            return Answer(status=response.status, headers=dict(response.headers), document=document)


@asynccontextmanager
async def serving(*, clock: Clock | None = None, **fields: Any) -> AsyncIterator[Site]:
    """A server that is stopped, and must end cleanly, when the block ends."""
    ready: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    stop, lines = asyncio.Event(), list[str]()
    config = ServerConfig(**{"l1_bytes": 1 << 20, "chunk_size": CHUNK, **fields})
    server = asyncio.create_task(
        serve(
            config,
            on_ready=lambda rpc, http: ready.set_result((rpc, http)),
            stop=stop,
            clock=clock,
            journal=lines.append,
        )
    )
    try:
        first: list[asyncio.Future[Any]] = [ready, server]
        await asyncio.wait(first, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            await server  # says why it did not start
        assert ready.done(), "the server did not start"
        rpc_port, http_port = ready.result()
        base = f"http://127.0.0.1:{http_port}"
        async with aiohttp.ClientSession(base) as http:
            yield Site(rpc_port=rpc_port, http_port=http_port, http=http, lines=lines)
    finally:
        stop.set()
        await asyncio.wait_for(server, WITHIN_S)
        assert not [line for line in lines if "unexpected: " in line]


class Engine:
    """One engine-driven client that sends its chunks inline."""

    def __init__(self, socket: zmq.asyncio.Socket, dialect: Dialect) -> None:
        self._socket = socket
        self._session = ClientSession(dialect)

    async def call(self, op: Op, *args: Any) -> Any:
        """Return the result of one request."""
        now_ns = time.monotonic_ns()
        out = self._session.request(op, args, now_ns=now_ns)
        await self._socket.send_multipart(out.frames)
        frames = await asyncio.wait_for(self._frames(), WITHIN_S)
        event = self._session.receive(frames, now_ns=time.monotonic_ns())
        assert isinstance(event, Reply), event
        return event.result

    async def give_up(self, op: Op, *args: Any) -> None:
        """Send a request, and do not wait for its reply."""
        now_ns = time.monotonic_ns()
        out = self._session.request(op, args, now_ns=now_ns)
        self._session.abandon(out.uid, now_ns=now_ns)
        await self._socket.send_multipart(out.frames)

    async def send(self, *frames: bytes) -> None:
        """Send frames of any kind."""
        await self._socket.send_multipart(frames)

    async def register(self) -> None:
        """Register as instance 1."""
        await self.call(
            Op.REGISTER_ENGINE_DRIVEN,
            {
                "instance_id": 1,
                "model_name": MODEL,
                "world_size": 1,
                "block_size": 16,
                "num_layers": LAYERS,
                "hidden_dim_size": HIDDEN,
                "dtype_str": "float16",
                "use_mla": False,
            },
        )

    async def store(self, chunks: int, request_id: str = "s", **fields: Any) -> bool:
        """Store chunks of zeros; the answer."""
        tensors = [InlineTensor("float16", SHAPE, bytes(OBJECT_BYTES))] * chunks
        wanted = key(chunks, request_id, **fields)
        stored: bool = await self.call(Op.COMMIT_STORE, wanted, 1, encode_tensor_list(tensors))
        return stored

    async def lookup(self, chunks: int, request_id: str) -> int:
        """Look chunks up, which locks them; how many were found."""
        wanted = key(chunks, request_id, worker_id=None)
        assert await self.call(Op.LOOKUP, wanted, 1) is VOID
        hits: int = await self.call(Op.QUERY_PREFETCH_STATUS, request_id)
        return hits

    async def retrieve(self, chunks: int, request_id: str) -> bool:
        """Read chunks that a lookup has locked; whether the server had them."""
        plan: RetrievePlan = await self.call(Op.PREPARE_RETRIEVE, key(chunks, request_id), 1)
        assert await self.call(Op.COMMIT_RETRIEVE, key(chunks, request_id), 1) is True
        return plan.success

    async def _frames(self) -> Sequence[bytes]:
        return await self._socket.recv_multipart()


def key(chunks: int, request_id: str, **fields: Any) -> CacheKey:
    """A key of the first chunks of the one token sequence here."""
    defaults: dict[str, Any] = {
        "model_name": MODEL,
        "world_size": 1,
        "worker_id": 0,
        "token_ids": list(range(chunks * CHUNK)),
        "start": 0,
        "end": chunks * CHUNK,
        "request_id": request_id,
    }
    return CacheKey(**{**defaults, **fields})


@asynccontextmanager
async def engine_of(site: Site, dialect: Dialect = V056) -> AsyncIterator[Engine]:
    """A registered client."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"tcp://127.0.0.1:{site.rpc_port}")
    try:
        engine = Engine(socket, dialect)
        await engine.register()
        yield engine
    finally:
        socket.close()
        context.term()
