"""The server's HTTP API over aiohttp: bounded answers, a deadline on each, one-line errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from benchserver.errors import one_line, os_reason
from protocol import httpapi
from protocol.errors import RemoteProtocolError

MAX_ANSWER_BYTES = 16 << 20
"""/status grows with the registered layers; nothing that we ask for is larger."""


class HttpFailedError(Exception):
    """No usable answer; the text names the URL, what came, and what to do.

    `refused` tells that nothing listens there.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class HttpApi:
    """The HTTP API of one server; create it inside a running event loop and close it."""

    def __init__(self, base_url: str, *, timeout_s: float, token: str = "") -> None:
        """`token` "" sends no Authorization header."""
        self._base = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            trust_env=False,
        )
        self._has_token = bool(token)
        self.routes = httpapi.HTTP_051
        """The paths of the release that is spoken to; the version's path is the same in all."""

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def version(self) -> str:
        """Return the server's version text, made printable."""
        return one_line(httpapi.parse_version(await self._get(self.routes.version)))

    async def status(self) -> httpapi.ServerStatus:
        """Return what /status says about registrations, sessions and locks."""
        return httpapi.parse_status(await self._get(self.routes.status))

    async def transfer_mode(self) -> str:
        """Return the server's `supported_transfer_mode`."""
        return httpapi.parse_transfer_mode(await self._get(self.routes.config))

    async def clear(self) -> None:
        """Remove everything that is not locked from L1."""
        await self._ask("POST", self.routes.clear, {})

    async def checksums(
        self, *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
    ) -> tuple[str, ...]:
        """Return the server's digests of an instance's blocks, one a chunk."""
        routes, blocks, chunk = self.routes, block_ids, blocks_per_chunk
        if routes.checksums_by_query:
            query = httpapi.checksums_query(
                block_ids=blocks, blocks_per_chunk=chunk, instance_id=instance_id
            )
            answer = await self._ask("GET", routes.checksums, None, query)
        else:
            body = httpapi.checksums_body(
                block_ids=blocks, blocks_per_chunk=chunk, instance_id=instance_id
            )
            answer = await self._ask("POST", routes.checksums, body)
        return httpapi.parse_checksums(answer, chunks=len(block_ids) // blocks_per_chunk)

    async def _get(self, path: str) -> Any:
        return await self._ask("GET", path, None)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        if not path:
            raise HttpFailedError(f"{self._base}: this release has no such page")
        url = self._base + path
        try:
            async with self._session.request(method, url, json=body, params=query) as response:
                content = await _read_bounded(response, url)
                status = response.status
        except aiohttp.ClientConnectorError as error:
            raise HttpFailedError(
                f"{method} {url}: cannot connect ({os_reason(error.os_error)})",
                refused=True,
            ) from error
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise HttpFailedError(
                f"{method} {url}: no answer within {self._timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            kind = type(error).__name__
            raise HttpFailedError(f"{method} {url}: {kind}: {one_line(error, 160)}") from error
        if status == 401:
            raise HttpFailedError(
                f"{method} {url}: HTTP 401, it wants a bearer token, and "
                f"{'this one is not accepted' if self._has_token else 'none was given'}; "
                "give it with --http-token-file or in BENCH_SERVER_HTTP_TOKEN"
            )
        if status != 200:
            shown = one_line(content.decode("utf-8", "replace"), 160)
            raise HttpFailedError(f"{method} {url}: HTTP {status}, expected 200: {shown}")
        return _parse_json(content, f"{method} {url}")


async def _read_bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise HttpFailedError(f"{url}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _parse_json(content: bytes, place: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        shown = one_line(content[:80].decode("utf-8", "replace"))
        raise HttpFailedError(f"{place}: {len(content)} bytes are not JSON: {shown}") from error


API_ERRORS = (HttpFailedError, RemoteProtocolError)
"""What any method of HttpApi may raise."""
