"""What clients may send: messages of any kind, in any number, of the other mode's operations."""

from __future__ import annotations

import time
from typing import Any

import msgpack
import pytest

from protocol.messages import VOID
from protocol.ops import Op
from tests.httpstage import serving
from tests.serverstage import (
    connected,
    key,
    registration,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.asyncio
async def test_reports_of_block_allocations_are_answered() -> None:
    good = {"req_id": "r", "new_block_ids": [1, 2], "new_token_ids": [5, 6, 7]}
    bad: list[dict[str, Any]] = [
        {},
        {**good, "req_id": 1},
        {**good, "new_block_ids": ["1"]},
        {**good, "new_token_ids": None},
        {name: value for name, value in good.items() if name != "new_block_ids"},
    ]

    async with serving() as server, connected(server.rpc_port) as [client]:
        for records in ([], [good], [good, good]):
            assert await client.call(Op.REPORT_BLOCK_ALLOCATION, 1, "m", records) is VOID
        for record in bad:
            assert await client.is_silent(Op.REPORT_BLOCK_ALLOCATION, 1, "m", [good, record])
        assert len(server.lines) == len(bad)
        assert all("a block allocation is" in line for line in server.lines)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "op", "args"),
    [
        ("engine_driven", Op.UNREGISTER_KV_CACHE, (1,)),
        ("engine_driven", Op.STORE, (key("s"), 1, [[1]], b"")),
        ("lmcache_driven", Op.REGISTER_ENGINE_DRIVEN, (registration(),)),
        ("lmcache_driven", Op.PREPARE_STORE, (key("s"), 1)),
    ],
)
async def test_operations_of_the_other_mode_get_no_reply(mode: str, op: Op, args: Any) -> None:
    async with (
        serving(transfer_mode=mode) as server,
        connected(server.rpc_port) as [client],
    ):
        assert await client.is_silent(op, *args)


@pytest.mark.asyncio
async def test_malformed_messages_do_not_end_it() -> None:
    pack = msgpack.packb
    deep = b"\x91" * 5000 + b"\xc0"
    messages: list[tuple[bytes, ...]] = [
        (b"",),
        (b"uid",),
        (b"", b"", b"", b""),
        (b"uid", pack(24), b"extra"),
        (b"uid", pack(9999)),
        (b"uid", pack("nonsense")),
        (b"uid", b"\xc1"),
        (b"uid", pack(24) + b"\0"),
        (b"uid", deep),
        (b"u" * 10_000, pack(24)),
        (b"uid", pack(8), deep, pack(1)),
        (b"uid", pack(8), pack({"model_name": "m"}), pack(1)),
        (b"uid", pack(14), pack({})),
        (b"uid", pack(1), *[pack([])] * 7),
        (b"uid", pack(20)),
        tuple([b"x"] * 100),
    ]

    async with serving() as server, connected(server.rpc_port) as [client]:
        for frames in messages:
            await client.raw(*frames)
        assert await client.call(Op.NOOP) == "OK"
        assert 0 < len(server.lines) <= len(messages)
        assert all("refused" in line for line in server.lines)
        # The op's name works too, and uid and op come back as they were.
        await client.raw(b"\xc1 any", pack("noop"))
        assert list(await client.receive()) == [b"\xc1 any", pack("noop"), pack("OK")]


@pytest.mark.asyncio
async def test_a_client_that_leaves_or_floods_does_not_disturb_others() -> None:
    async with serving() as server, connected(server.rpc_port, 2) as [first, second]:
        results = await first.calls([(Op.NOOP, ()), (Op.PING, (None,))] * 300)
        assert results == ["OK", True] * 300
        async with connected(server.rpc_port) as [gone]:
            now_ns = time.monotonic_ns()
            out = gone.session.request(Op.NOOP, (), now_ns=now_ns)
            await gone.socket.send_multipart(out.frames)
        assert await second.call(Op.NOOP) == "OK"
