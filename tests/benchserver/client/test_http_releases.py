"""The HTTP client and the pages of older releases."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchserver.client.http import HttpApi, HttpFailedError
from protocol.httpapi import HTTP_041, HTTP_045
from tests.benchserver.client.webpeer import (
    STATUS,
    answer,
    clear_cache,
    requests_of,
)

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_digests_by_query() -> None:
    sums = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32] * 2}).encode())
    (request,) = await requests_of(
        sums,
        HTTP_045,
        lambda api: api.checksums(block_ids=(4, 3, 2, 1), blocks_per_chunk=2, instance_id=9),
    )
    query = b"block_ids=4,3,2,1&chunk_size=2&instance_id=9&layerwise=false"
    assert request.startswith(b"GET /kvcache/check?" + query + b" HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("chunks", "blocks_per_chunk", "parts"),
    [(32, 16, [512]), (33, 16, [512, 16]), (3, 300, [300, 300, 300]), (2, 600, [600, 600])],
)
async def test_long_queries_come_in_parts(
    chunks: int, blocks_per_chunk: int, parts: list[int]
) -> None:
    """A first line of more than 8 KiB is refused by many, our own server of before among them."""
    asked: list[list[int]] = []

    class Counts(HttpApi):
        async def _ask(
            self, method: str, path: str, body: Any, query: Any = None, *, most_bytes: int = 0
        ) -> Any:
            asked.append([int(number) for number in query["block_ids"].split(",")])
            assert query["chunk_size"] == str(blocks_per_chunk)
            first = asked[-1][0] // blocks_per_chunk
            count = len(asked[-1]) // blocks_per_chunk
            digests = [f"{first + chunk:032x}" for chunk in range(count)]
            return {"status": "success", "chunk_checksums": digests}

    async def main() -> tuple[str, ...]:
        api = Counts("http://127.0.0.1:1", timeout_s=1)
        api.routes = HTTP_045
        try:
            return await api.checksums(
                block_ids=range(chunks * blocks_per_chunk),
                blocks_per_chunk=blocks_per_chunk,
                instance_id=1,
            )
        finally:
            await api.close()

    assert await main() == tuple(f"{chunk:032x}" for chunk in range(chunks))
    assert [len(ids) for ids in asked] == parts


@pytest.mark.asyncio
async def test_other_pages_of_older_releases() -> None:
    (clear,) = await requests_of(answer(b"{}"), HTTP_045, clear_cache)
    assert clear.startswith(b"POST /clear-cache HTTP/1.1\r\n")
    (clear,) = await requests_of(answer(b"{}"), HTTP_041, clear_cache)
    assert clear.startswith(b"POST /api/clear-cache HTTP/1.1\r\n")
    mode = answer(b'{"mp": {"transfer_mode": "non_gpu"}}')
    (config,) = await requests_of(mode, HTTP_045, HttpApi.transfer_mode)
    assert config.startswith(b"GET /conf HTTP/1.1\r\n")
    (status,) = await requests_of(answer(json.dumps(STATUS).encode()), HTTP_041, HttpApi.status)
    assert status.startswith(b"GET /api/status HTTP/1.1\r\n")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "method",
    [
        HttpApi.version,
        HttpApi.transfer_mode,
        lambda api: api.checksums(block_ids=(1,), blocks_per_chunk=1, instance_id=0),
    ],
)
async def test_a_page_that_a_release_lacks_is_not_asked_for(
    method: Callable[[HttpApi], Awaitable[Any]],
) -> None:
    with pytest.raises(
        HttpFailedError, match=r"^http://127\.0\.0\.1:\d+: this release has no such"
    ):
        await requests_of(answer(b"{}"), HTTP_041, method)
