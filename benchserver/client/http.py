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

    def __init__(self, base_url: str, *, timeout_s: float) -> None:
        self._base = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s), trust_env=False
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def version(self) -> str:
        """Return the server's version text, made printable."""
        return one_line(httpapi.parse_version(await self._get(httpapi.VERSION_PATH)))

    async def status(self) -> httpapi.ServerStatus:
        """Return what /status says about registrations, sessions and locks."""
        return httpapi.parse_status(await self._get(httpapi.STATUS_PATH))

    async def transfer_mode(self) -> str:
        """Return the server's `supported_transfer_mode`."""
        return httpapi.parse_transfer_mode(await self._get(httpapi.CONFIG_PATH))

    async def clear(self) -> None:
        """Remove everything that is not locked from L1."""
        await self._ask("POST", httpapi.CLEAR_PATH, {})

    async def checksums(
        self, *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
    ) -> tuple[str, ...]:
        """Return the server's digests of an instance's blocks, one a chunk."""
        body = httpapi.checksums_body(
            block_ids=block_ids, blocks_per_chunk=blocks_per_chunk, instance_id=instance_id
        )
        answer = await self._ask("POST", httpapi.CHECKSUMS_PATH, body)
        return httpapi.parse_checksums(answer, chunks=len(block_ids) // blocks_per_chunk)

    async def _get(self, path: str) -> Any:
        return await self._ask("GET", path, None)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        url = self._base + path
        try:
            async with self._session.request(method, url, json=body) as response:
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
