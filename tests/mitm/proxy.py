"""A transparent ROUTER to DEALER proxy: every request passes through a fault's handler.

Each client has its own connection to the server.  A request that cannot be read passes as it
is.  When the server's connection is lost, so are the clients'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import zmq
import zmq.asyncio

from benchserver.tasks import cancel_and_wait
from protocol import codec
from protocol.dialects import V056
from protocol.errors import RemoteProtocolError
from protocol.messages import PoolInfo
from protocol.ops import Op
from tests.mitm.link import Call, Frames, Handler, Ledger, pass_through
from tests.mitm.memory import ClientMemory, map_segment
from tests.mitm.upstream import Upstream

_ASK_WITHIN_S = 5.0
_DEBTS_WITHIN_S = 0.5
_MAX_DEBTS = 256


class RpcProxy:
    """One front socket; create it inside a running event loop and close it."""

    def __init__(
        self,
        rpc_url: str,
        handlers: Mapping[Op, Handler],
        *,
        delay_s: float,
        kill: Callable[[], None],
    ) -> None:
        """`delay_s` is for faults that wait; `kill` ends the server's process."""
        self._url = rpc_url
        self._handlers = handlers
        self._delay_s = delay_s
        self._kill = kill
        self._context = zmq.asyncio.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self.port = self._front.bind_to_random_port("tcp://127.0.0.1")
        self._own = self._connect(lambda frames: None)
        self._own_uid = 0
        self._clients: dict[bytes, Upstream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ledger = Ledger(chunk_tokens=0)
        self._lost = False
        self.failures: list[BaseException] = []
        """What handlers raised: bugs of the proxy, which a test must see."""

    async def start(self) -> None:
        """Learn the chunk size and begin to serve."""
        self._ledger.chunk_tokens = await self.ask(Op.GET_CHUNK_SIZE)
        self._spawn(self._serve())

    async def close(self) -> None:
        """End every connection, after the calls that faults swallowed have been made."""
        await cancel_and_wait(self._tasks)
        if self._ledger.debts and not self._lost:
            # Sessions of models that are no longer registered are ended, but not answered.
            paid = [self.ask(op, *args, within_s=_DEBTS_WITHIN_S) for op, args in self._debts()]
            await asyncio.gather(*paid, return_exceptions=True)
        for upstream in (self._own, *self._clients.values()):
            await upstream.close()
        self._front.close(linger=0)
        self._context.destroy(linger=0)

    def _debts(self) -> list[tuple[Op, tuple[Any, ...]]]:
        return self._ledger.debts[:_MAX_DEBTS]

    async def ask(self, op: Op, *args: Any, within_s: float = _ASK_WITHIN_S) -> Any:
        """Make a request of the proxy's own and return its result."""
        self._own_uid += 1
        frames = codec.encode_request(V056, self._own_uid, op, args)
        reply = await asyncio.wait_for(self._own.call(frames), within_s)
        return codec.decode_result(V056.ops[op], op, reply)

    def _connect(self, on_stray: Callable[[Frames], None]) -> Upstream:
        return Upstream(self._context, self._url, on_stray=on_stray, on_lost=self._server_lost)

    def _server_lost(self) -> None:
        # The clients must see what they would see without us: their connection ends.
        self._lost = True
        self._front.close(linger=0)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._lost:
            self.failures.append(error)

    async def _serve(self) -> None:
        while True:
            identity, *frames = await self._front.recv_multipart()
            self._spawn(self._handle(identity, tuple(frames)))

    async def _handle(self, identity: bytes, frames: Frames) -> None:
        async def send_back(reply: Frames) -> None:
            await self._front.send_multipart((identity, *reply))

        upstream = self._clients.get(identity)
        if upstream is None:
            upstream = self._connect(lambda stray: self._spawn(send_back(stray)))
            self._clients[identity] = upstream
        try:
            request = codec.decode_request(V056, frames)
        except RemoteProtocolError:
            await send_back(await upstream.call(frames))
            return
        turn = self._ledger.turns.get(request.op, 0)
        self._ledger.turns[request.op] = turn + 1
        call = Call(
            frames=frames,
            request=request,
            turn=turn,
            ledger=self._ledger,
            pass_on=upstream.call,
            send_back=send_back,
            ask=self.ask,
            delay_s=self._delay_s,
            kill=self._kill,
        )
        await _OBSERVERS.get(request.op, _dispatch)(call, self._handlers.get(request.op))


async def _dispatch(call: Call, handler: Handler | None) -> None:
    await (handler or pass_through)(call)


async def _see_register(call: Call, handler: Handler | None) -> None:
    """Map the client's memory before the server does."""
    instance_id, handles, *_, infos = call.args
    groups = [info["layer_indices"] for info in infos]
    call.ledger.memories[int(instance_id)] = ClientMemory(handles, groups)
    await _dispatch(call, handler)


async def _see_unregister(call: Call, handler: Handler | None) -> None:
    call.ledger.memories.pop(int(call.args[0]), None)
    await _dispatch(call, handler)


async def _see_engine_register(call: Call, handler: Handler | None) -> None:
    """Map the server's pool, if it names one."""
    frames = await call.forward()
    info: PoolInfo = call.result_of(frames)
    if info.shm_name:
        instance_id = int(call.args[0]["instance_id"])
        call.ledger.pools[instance_id] = map_segment(info.shm_name, info.pool_bytes)
    await call.reply(frames)


_OBSERVERS = {
    Op.REGISTER_KV_CACHE: _see_register,
    Op.UNREGISTER_KV_CACHE: _see_unregister,
    Op.REGISTER_ENGINE_DRIVEN: _see_engine_register,
}
