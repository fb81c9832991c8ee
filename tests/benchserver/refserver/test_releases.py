"""What the embedded server does otherwise when it speaks as another release than 0.5.6."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
import zmq
import zmq.asyncio

from benchserver.refserver.config import spoken_releases
from benchserver.refserver.store.segments import create_segment, unlink_segment
from protocol.dialect import Dialect
from protocol.dialects import dialect_of
from protocol.handles import CPU_EVENT_STUB, CpuShmHandle, contiguous_strides
from protocol.messages import VOID, Reply, TransferResult
from protocol.ops import Op
from protocol.session import ClientSession
from tests.httpstage import CHUNK, WITHIN_S, Site, engine_of, key, serving

SPOKEN = spoken_releases()
BLOCKS, BS, HIDDEN = 8, 16, 4
BLOCK_BYTES = BS * HIDDEN
SEGMENT = f"rst{os.getpid()}-releases"


# Over the wire


class Client:
    """A DEALER that speaks as one release."""

    def __init__(self, socket: zmq.asyncio.Socket, dialect: Dialect) -> None:
        self._socket = socket
        self._dialect = dialect
        self._session = ClientSession(dialect)

    async def call(self, op: Op, **values: Any) -> Any:
        """Return the result."""
        args = self._dialect.arguments(op, values)
        out = self._session.request(op, args, now_ns=0)
        await self._socket.send_multipart(out.frames)
        event = self._session.receive(await self._frames(), now_ns=0)
        assert isinstance(event, Reply), event
        return event.result

    async def is_silent(self, op: Op, **values: Any) -> bool:
        """Tell whether a request gets no reply; the NOOP behind it, on the same lane, gets one."""
        args = self._dialect.arguments(op, values)
        out = self._session.request(op, args, now_ns=0)
        self._session.abandon(out.uid, now_ns=0)
        await self._socket.send_multipart(out.frames)
        return bool(await self.call(Op.NOOP) == "OK")

    async def register(self, handle: CpuShmHandle) -> None:
        """Register instance 1 with one MLA layer."""
        group = {"engine_group_id": 0, "layer_indices": [0], "tokens_per_block": BS}
        answer = await self.call(
            Op.REGISTER_KV_CACHE,
            instance_id=1,
            kv_cache=[handle],
            model_name="m",
            world_size=1,
            engine_type="vllm",
            layout_hints={"kv_layout": "NHD"},
            engine_group_infos=[group],
        )
        assert answer is VOID

    async def _frames(self) -> Sequence[bytes]:
        frames = self._socket.recv_multipart()
        return await asyncio.wait_for(frames, WITHIN_S)


@asynccontextmanager
async def spoken(release: str, **fields: Any) -> AsyncIterator[tuple[Site, Client]]:
    """A server that speaks as a release, and a client of it."""
    context = zmq.asyncio.Context()
    async with serving(release=release, **fields) as site:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://127.0.0.1:{site.rpc_port}")
        try:
            yield site, Client(socket, dialect_of(release))
        finally:
            socket.close()
            context.term()


@pytest.mark.asyncio
@pytest.mark.parametrize("release", SPOKEN)
async def test_a_transfer_of_an_unregistered_instance(release: str) -> None:
    """Releases before 0.5.5 do not answer it, neither STORE nor RETRIEVE."""

    async with spoken(release) as (_, client):
        values = {"key": key(1, "r"), "instance_id": 9, "block_ids": [[1, 2]], "skip": 0}
        values |= {"event": CPU_EVENT_STUB, "skip_first_n_tokens": 0}
        for op in (Op.STORE, Op.RETRIEVE):
            if dialect_of(release).refuses_unregistered:
                assert await client.call(op, **values) == TransferResult(event=b"", ok=False)
            else:
                assert await client.is_silent(op, **values)


@pytest.mark.asyncio
@pytest.mark.parametrize("release", SPOKEN)
async def test_a_lookup_ends_at_its_end_or_with_its_tokens(release: str) -> None:
    """Releases before 0.5.6 look up all tokens that the key brings."""

    async with spoken(release) as (site, client):
        values = {"worker_id": None, "end": CHUNK}
        values |= {"num_kv_readers": 1} if dialect_of(release).keys_name_readers else {}
        await client.call(Op.LOOKUP, key=key(2, "r", **values), tp_size=1)
        metrics = str((await site.ask("GET", "/metrics")).document)
        asked = 1 if release in ("0.5.6", "0.5.7rc2") else 2
        assert f"bench_embedded_lookup_chunks_total {asked}.0" in metrics


@pytest.mark.asyncio
@pytest.mark.parametrize("release", SPOKEN)
async def test_the_hits_of_a_lookup_until_they_are_consumed(release: str) -> None:
    dialect = dialect_of(release)
    if Op.QUERY_PREFETCH_LOOKUP_HITS not in dialect.ops:
        assert release in ("0.5.6", "0.5.7rc2")
        return

    async with spoken(release) as (_, client):
        asked = {"key": key(1, "r", worker_id=None, num_kv_readers=1), "tp_size": 1}
        assert await client.call(Op.LOOKUP, **asked) is VOID
        for _ in range(2):
            assert await client.call(Op.QUERY_PREFETCH_LOOKUP_HITS, request_id="r") == 0
        assert await client.call(Op.QUERY_PREFETCH_LOOKUP_HITS, request_id="never") == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("release", SPOKEN)
async def test_what_it_says_over_http(release: str) -> None:
    async with spoken(release) as (site, _):
        routes = dialect_of(release).http
        for path in ("/", routes.health, routes.version, routes.status, routes.config):
            assert (await site.ask("GET", path)).status == 200, path
        assert (await site.ask("GET", routes.version)).document == f"{release}-embedded"
        old = release in ("0.4.6", "0.4.7", "0.5.0")
        assert (await site.ask("GET", "/conf")).status == (200 if old else 404)
        assert (await site.ask("GET", "/config")).status == (404 if old else 200)
        assert (await site.ask("POST", "/clear-cache")).status == (200 if old else 404)
        assert (await site.ask("POST", "/cache/clear")).status == (404 if old else 200)
        assert (await site.ask("POST", "/cache/checksums")).status == (404 if old else 422)
        assert (await site.ask("GET", "/kvcache/check")).status == (
            404 if not old else 404 if dialect_of(release).maps_cpu else 501
        )


# GET /kvcache/check, of 0.5.0 and before


@contextmanager
def one_layer() -> Iterator[tuple[CpuShmHandle, bytes]]:
    """Yield a layer's descriptor and its bytes: block N is full of N."""
    content = b"".join(bytes([block]) * BLOCK_BYTES for block in range(BLOCKS))
    descriptor = create_segment(SEGMENT)
    try:
        os.write(descriptor, content)
        shape = (BLOCKS, BS, HIDDEN)
        handle = CpuShmHandle(
            shm_name=f"/{SEGMENT}",
            nbytes=len(content),
            dtype="uint8",
            shape=shape,
            stride=contiguous_strides(shape),
        )
        yield handle, content
    finally:
        os.close(descriptor)
        unlink_segment(SEGMENT)


def check_path(block_ids: str, size: object = 2, instance: object = 1, **more: object) -> str:
    query = {"block_ids": block_ids, "chunk_size": size, "instance_id": instance, **more}
    return f"/kvcache/check?{urlencode(query)}"


def digest(*blocks: int) -> str:
    return hashlib.md5(b"".join(bytes([block]) * BLOCK_BYTES for block in blocks)).hexdigest()


@pytest.mark.asyncio
async def test_digests_by_query() -> None:
    async with spoken("0.5.0") as (site, client):
        with one_layer() as (handle, _):
            await client.register(handle)
            answer = await site.ask("GET", check_path("1,[2,4]"))
            assert answer.document == {
                "status": "success",
                "chunk_size": 2,
                "num_chunks": 2,
                "chunk_checksums": [digest(1, 2), digest(3, 4)],
                "layerwise": False,
                "block_id_ranges": [[1, 4]],
            }
            spaced = await site.ask("GET", check_path(" 7 , [ 0 , 0 ] ", 1, layerwise="TRUE"))
            assert spaced.document["chunk_checksums"] == {"layer_0": [digest(7), digest(0)]}
            commas = await site.ask(
                "GET", "/kvcache/check?block_ids=3,5&chunk_size=2&instance_id=1"
            )
            assert commas.document["chunk_checksums"] == [digest(3, 5)]
            many = await site.ask("GET", check_path(",".join(["1,0"] * 8000), 16_000))
            assert many.document["chunk_checksums"] == [digest(*[1, 0] * 8000)]


BAD_QUERIES = {
    "/kvcache/check": 404,
    "/kvcache/check?instance_id=1": 400,
    "/kvcache/check?instance_id=1&block_ids=": 400,
    check_path("1", 0): 400,
    check_path("1", -1): 400,
    check_path("1", "1.5"): 422,
    check_path("1", ""): 422,
    check_path("1", "9" * 20): 422,
    check_path("1", "٣"): 422,
    check_path("1", 1, "one"): 422,
    check_path("1", 1, 2): 404,
    check_path("1", 1, -(2**63)): 404,
    check_path("1", 1, layerwise="maybe"): 422,
    check_path("1", 1, layerwise="\x00\n"): 422,
    check_path("1,"): 400,
    check_path(",1"): 400,
    check_path("-1"): 400,
    check_path("1;2"): 400,
    check_path("[1]"): 400,
    check_path("[1,2,3]"): 400,
    check_path("[1,2"): 400,
    check_path("[[1,2]]"): 400,
    check_path("[3,1]"): 400,
    check_path("1e3"): 400,
    check_path("٣"): 400,
    check_path("[0,999999999]"): 400,
    check_path("[0,1048575],1"): 400,
    check_path("9" * 10): 400,
    "/kvcache/check?block_ids=%ff%00&chunk_size=1&instance_id=1": 400,
    "/kvcache/check?block_ids=1&block_ids=[&chunk_size=1&instance_id=1": 200,
    # As the real server says it; the next two are no fault of ours.
    check_path(str(BLOCKS)): 500,
    check_path("[0,8]"): 500,
}


@pytest.mark.asyncio
async def test_bad_queries() -> None:
    async with spoken("0.5.0") as (site, client):
        with one_layer() as (handle, _):
            await client.register(handle)
            for path, status in BAD_QUERIES.items():
                answer = await site.ask("GET", path)
                assert answer.status == status, (path, answer)
                if status >= 400:
                    assert set(answer.document) == {"detail"}
                    assert len(answer.document["detail"]) < 300
            assert (await site.ask("POST", check_path("1"))).status == 405
            assert (await site.ask("GET", "/status")).document["is_healthy"]
            assert not any("Traceback" in line or "Error" in line for line in site.lines)


@pytest.mark.asyncio
async def test_clear_cache_clears_what_is_locked_too() -> None:
    async with (
        spoken("0.5.0") as (site, _),
        engine_of(site, dialect_of("0.5.0")) as engine,
    ):
        assert await engine.store(1)
        assert await engine.lookup(1, "r") == 1
        for body in (None, b"", b"{}", b"no json", b"[]"):
            answer = await site.ask("POST", "/clear-cache", data=body)
            assert (answer.status, answer.document) == (200, {"status": "ok"})
        assert (await site.ask("GET", "/clear-cache")).status == 405
        assert await engine.lookup(1, "s") == 0


@pytest.mark.asyncio
async def test_a_fault_of_a_path_knows_it_by_its_old_name() -> None:
    async with spoken("0.5.0", faults=("digest_500",)) as (site, _):
        assert (await site.ask("GET", check_path("1"))).status == 500


@pytest.mark.asyncio
async def test_the_token_guards_old_paths() -> None:
    async with spoken("0.5.0", http_token="secret") as (site, _):
        for method, path in (
            ("GET", check_path("1")),
            ("POST", "/clear-cache"),
            ("GET", "/conf"),
            ("GET", "/version"),
        ):
            assert (await site.ask(method, path)).status == 401, path
        assert (await site.ask("GET", "/healthcheck")).status == 200
