"""The server's HTTP API over aiohttp: bounded answers, a deadline on each, one-line errors.

The certificate of an https server is verified.  A redirect is not followed: neither the token nor
a question goes anywhere but to the server that was named.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from benchserver.errors import one_line, os_reason
from protocol import httpapi
from protocol.errors import RemoteProtocolError

MAX_ANSWER_BYTES = 16 << 20
"""/status grows with the registered layers; nothing that we ask for is larger."""


_MAX_QUERY_IDS = 512
"""Block ids in one query (0.5.0 and before), up to whole chunks: servers and proxies bound the
first line of a request, many at 8 KiB."""


class HttpFailedError(Exception):
    """No usable answer; the text names the URL, what came, and what to do."""


class HttpApi:
    """The HTTP API of one server; create it inside a running event loop and close it."""

    def __init__(self, base_url: str, *, timeout_s: float, token: str = "", ca: str = "") -> None:
        """`token` "" sends no Authorization header.

        `ca` is a PEM file: the authorities trusted in place of the system's; "": the system's.
        """
        self._base = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Authorization": f"Bearer {token}"} if token else None,
            connector=_verifying(ca) if base_url.lower().startswith("https:") else None,
            trust_env=False,
        )
        self._token = token
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
        path = self.routes.checksums
        if not self.routes.checksums_by_query:
            body = httpapi.checksums_body(
                block_ids=block_ids, blocks_per_chunk=blocks_per_chunk, instance_id=instance_id
            )
            answer = await self._ask("POST", path, body)
            return httpapi.parse_checksums(answer, chunks=len(block_ids) // blocks_per_chunk)
        digests: list[str] = []
        step = max(1, _MAX_QUERY_IDS // blocks_per_chunk) * blocks_per_chunk
        for first in range(0, len(block_ids), step):
            part = block_ids[first : first + step]
            query = httpapi.checksums_query(
                block_ids=part, blocks_per_chunk=blocks_per_chunk, instance_id=instance_id
            )
            answer = await self._ask("GET", path, None, query)
            digests += httpapi.parse_checksums(answer, chunks=len(part) // blocks_per_chunk)
        return tuple(digests)

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
            async with self._session.request(
                method, url, json=body, params=query, allow_redirects=False
            ) as response:
                content = await _read_bounded(response, url)
                status = response.status
        except aiohttp.ClientConnectorError as error:
            raise HttpFailedError(f"{method} {url}: {_connect_reason(error)}") from error
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise HttpFailedError(
                f"{method} {url}: no answer within {self._timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            kind = type(error).__name__
            raise HttpFailedError(f"{method} {url}: {kind}: {self._shown(error, 160)}") from error
        if status == 401:
            raise HttpFailedError(
                f"{method} {url}: HTTP 401, it wants a bearer token, and "
                f"{'this one is not accepted' if self._token else 'none was given'}; "
                "give it with --http-token-file or in BENCH_SERVER_HTTP_TOKEN"
            )
        if status != 200:
            shown = self._shown(content.decode("utf-8", "replace"), 160)
            raise HttpFailedError(f"{method} {url}: HTTP {status}, expected 200: {shown}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            shown = self._shown(content.decode("utf-8", "replace"), 80)
            raise HttpFailedError(
                f"{method} {url}: {len(content)} bytes are not JSON: {shown}"
            ) from error

    def _shown(self, text: object, limit: int) -> str:
        """Return what came as one line, without the token that it may echo."""
        told = str(text)
        return one_line(told.replace(self._token, "***") if self._token else told, limit)


def _verifying(ca: str) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca or None))


def _connect_reason(error: aiohttp.ClientConnectorError) -> str:
    # What TLS says is an OSError too, but its numbers are not those of the system.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        reason = getattr(cause, "verify_message", "") or cause
        return (
            f"the server's certificate is not accepted ({one_line(reason, 120)}); give the "
            "authority that signed it with --http-ca, or correct --url"
        )
    if isinstance(error.os_error, ssl.SSLError):
        reason = error.os_error.reason or error.os_error
        return f"TLS failed ({one_line(reason, 120)}); is it an http:// server?"
    return f"cannot connect ({os_reason(error.os_error)})"


async def _read_bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise HttpFailedError(f"{url}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


API_ERRORS = (HttpFailedError, RemoteProtocolError)
"""What any method of HttpApi may raise."""
