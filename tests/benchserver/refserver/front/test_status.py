"""What a client leaves and holds, as /status and its neighbours tell it."""

from __future__ import annotations

import pytest

from protocol import httpapi
from protocol.dialects import V056, dialect_of, release_of
from tests.httpstage import serving
from tests.serverstage import (
    BS,
    CHUNK,
    CLASSICAL,
    connected,
    http,
    infos,
    kv_pages,
    name,
    register,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.asyncio
async def test_http_answers() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving(shm_name=name()) as server, connected(server.rpc_port) as [client]:
            port = server.http_port
            await register(client, 1, pages, infos([0]))
            assert (await http(port, "/"))[1]["status"] == "ok"
            assert await http(port, httpapi.HEALTH_PATH) == (200, {"status": "healthy"})
            version = httpapi.parse_version((await http(port, httpapi.VERSION_PATH))[1])
            assert dialect_of(release_of(version)) is V056
            config = (await http(port, httpapi.CONFIG_PATH))[1]
            assert httpapi.parse_transfer_mode(config) == "auto"
            assert (config["mp"]["chunk_size"], config["mp"]["null_block_id"]) == (CHUNK, 0)
            status = (await http(port, httpapi.STATUS_PATH))[1]
            assert httpapi.parse_status(status).handle_instances == {1}
            layout = status["cache_context_meta"]["1"]["kv_cache_layout"]
            assert (layout["num_layers"], layout["num_blocks"]) == (1, 16)
            assert layout["kernel_groups"][0]["slots_per_block"] == BS
            assert await http(port, httpapi.CLEAR_PATH, {"force": True}) == (
                200,
                {"status": "ok", "cleared": {"tier": "l1"}},
            )
            assert (await http(port, httpapi.CLEAR_PATH, b""))[0] == 200
            assert (await http(port, httpapi.CLEAR_PATH, {"tier": "l2"}))[0] == 400
            assert (await http(port, httpapi.CLEAR_PATH, {"force": 1}))[0] == 422
            assert (await http(port, "/nowhere"))[0] == 404
            good = httpapi.checksums_body(block_ids=[1], blocks_per_chunk=1, instance_id=1)
            for change, want in (
                ({}, 200),
                ({"layerwise": True}, 200),
                ({"instance_id": 2}, 404),
                ({"block_ids": []}, 400),
                ({"chunk_size": 0}, 400),
                ({"block_ids": "1"}, 422),
                ({"layerwise": 1}, 422),
                ({"block_ids": [16]}, 500),
                ({"block_ids": [-1]}, 500),
                ({"block_ids": [2**70]}, 500),
            ):
                found, answer = await http(port, httpapi.CHECKSUMS_PATH, {**good, **change})
                assert (found, "detail" in answer) == (want, want != 200), change
            for body in (b"", b"{", b"[]", b"[" * 100_000, b"\xff"):
                assert (await http(port, httpapi.CHECKSUMS_PATH, body))[0] == 422


@pytest.mark.asyncio
async def test_an_engine_driven_server_has_no_digests() -> None:
    async with serving(transfer_mode="engine_driven") as server:
        body = httpapi.checksums_body(block_ids=[1], blocks_per_chunk=1, instance_id=1)
        assert (await http(server.http_port, httpapi.CHECKSUMS_PATH, body))[0] == 501
