"""The server's HTTP API over aiohttp: bounded answers, a deadline on each, one-line errors.

An answer is bounded before it is decoded, each page by what it can need: bytes first, then what
they would make.  Of an error page only its beginning is read.

The certificate of an https server is verified.  A redirect is not followed: neither the token nor
a question goes anywhere but to the server that was named.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from benchserver.client.names import UnresolvedError, addresses_of, unresolved
from benchserver.errors import one_line, os_reason
from benchserver.tasks import OutOfTimeError, within
from protocol import httpapi
from protocol.bounds import check_json
from protocol.counters import Counters, read_counters
from protocol.errors import RemoteProtocolError
from protocol.httpapi import METRICS_PATH
from protocol.metrics import read_failures

MAX_SHORT_BYTES = 64 << 10
"""An answer of a few words, and what lies around the digests."""

MAX_CONFIG_BYTES = 1 << 20
"""/config of 0.5.6 has 4 KB, plus whatever its tiers are configured with."""

MAX_STATUS_BYTES = 4 << 20
"""/status of 0.5.6 has 3 KB, and grows with the registered workers and layers."""

MAX_METRICS_BYTES = 1 << 20
"""/metrics of 0.5.6 has 40 KB after some runs, of which each leaves labels of its own."""

MAX_DIGEST_BYTES = 64
"""An MD5 in hex, with quotes, comma and space."""

_ERROR_BYTES = 4 << 10
"""How much of an error page is read; less is shown."""

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
        self._resolver = _Resolver()
        verified = base_url.lower().startswith("https:")
        trusted = ssl.create_default_context(cafile=ca or None) if verified else True
        self._session = aiohttp.ClientSession(
            # Deadlines are ours, which know when this process itself stood still.
            timeout=aiohttp.ClientTimeout(total=None),
            headers=_headers(token),
            connector=aiohttp.TCPConnector(ssl=trusted, resolver=self._resolver),
            # Nothing is unpacked, which could grow without bound, and no cookie is kept.
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
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
        return httpapi.parse_status(await self._get(self.routes.status, MAX_STATUS_BYTES))

    async def failures(self) -> dict[str, int]:
        """Return the counters of /metrics that say why a store or a lookup failed."""
        return read_failures(await self._metrics())

    async def counters(self, model_name: str) -> Counters | None:
        """Return how the chunks of a model fare, by /metrics; None: it tells of none."""
        return read_counters(await self._metrics(), model_name)

    async def _metrics(self) -> str:
        answer = await self._content("GET", METRICS_PATH, None, most_bytes=MAX_METRICS_BYTES)
        return answer.decode("utf-8", "replace")

    async def transfer_mode(self) -> str:
        """Return the server's `supported_transfer_mode`."""
        return httpapi.parse_transfer_mode(await self._get(self.routes.config, MAX_CONFIG_BYTES))

    async def configuration(self) -> dict[str, Any]:
        """Return what the server was started with, without its secrets."""
        return httpapi.parse_configuration(await self._get(self.routes.config, MAX_CONFIG_BYTES))

    async def checksums(
        self, *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
    ) -> tuple[str, ...]:
        """Return the server's digests of an instance's blocks, one a chunk."""
        path = self.routes.checksums
        if not self.routes.checksums_by_query:
            body = httpapi.checksums_body(
                block_ids=block_ids, blocks_per_chunk=blocks_per_chunk, instance_id=instance_id
            )
            chunks = len(block_ids) // blocks_per_chunk
            answer = await self._ask("POST", path, body, most_bytes=_digests_bytes(chunks))
            return httpapi.parse_checksums(answer, chunks=chunks)
        digests: list[str] = []
        step = max(1, _MAX_QUERY_IDS // blocks_per_chunk) * blocks_per_chunk
        for first in range(0, len(block_ids), step):
            part = block_ids[first : first + step]
            query = httpapi.checksums_query(
                block_ids=part, blocks_per_chunk=blocks_per_chunk, instance_id=instance_id
            )
            chunks = len(part) // blocks_per_chunk
            most_bytes = _digests_bytes(chunks)
            answer = await self._ask("GET", path, None, query, most_bytes=most_bytes)
            digests += httpapi.parse_checksums(answer, chunks=chunks)
        return tuple(digests)

    async def _get(self, path: str, most_bytes: int = MAX_SHORT_BYTES) -> Any:
        return await self._ask("GET", path, None, most_bytes=most_bytes)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
        *,
        most_bytes: int = MAX_SHORT_BYTES,
    ) -> Any:
        content = await self._content(method, path, body, query, most_bytes=most_bytes)
        return self._decoded(content, f"{method} {self._base}{path}")

    async def _content(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
        *,
        most_bytes: int,
    ) -> bytes:
        if not path:
            raise HttpFailedError(f"{self._base}: this release has no such page")
        url = self._base + path
        asked = f"{method} {url}"
        try:
            status, content = await within(
                self._exchange(method, url, body, query, most_bytes), self._timeout_s
            )
        except OutOfTimeError as error:
            raise HttpFailedError(f"{asked}: {self._too_late()}{error.ours}") from error
        except aiohttp.ClientConnectorError as error:
            raise HttpFailedError(f"{asked}: {_connect_reason(error)}") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            kind = type(error).__name__
            raise HttpFailedError(f"{asked}: {kind}: {self._shown(error, 160)}") from error
        if status == 401:
            raise HttpFailedError(
                f"{asked}: HTTP 401, it wants a bearer token, and "
                f"{'this one is not accepted' if self._token else 'none was given'}; "
                "give it with --http-token-file or in BENCH_SERVER_HTTP_TOKEN"
            )
        if status != 200:
            shown = self._shown(content, 160)
            raise HttpFailedError(f"{asked}: HTTP {status}, expected 200: {shown}")
        if len(content) > most_bytes:
            raise HttpFailedError(f"{asked}: the answer is longer than {most_bytes} bytes")
        return content

    async def _exchange(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        most_bytes: int,
    ) -> tuple[int, bytes]:
        """Return the status and the body, or the beginning of one that is too long."""
        async with self._session.request(
            method, url, json=body, params=query, allow_redirects=False
        ) as response:
            most = most_bytes if response.status == 200 else _ERROR_BYTES
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > most:
                    response.close()
                    break
            return response.status, bytes(content[: most + 1])

    def _too_late(self) -> str:
        if self._resolver.host:
            reason = f"no answer to that within {self._timeout_s:g} s"
            return str(unresolved(self._resolver.host, reason))
        return f"no answer within {self._timeout_s:g} s"

    def _decoded(self, content: bytes, asked: str) -> Any:
        try:
            check_json(content, asked)
            return json.loads(content)
        except RemoteProtocolError as error:
            raise HttpFailedError(str(error)) from error
        except (ValueError, RecursionError) as error:
            shown = self._shown(content, 80)
            raise HttpFailedError(f"{asked}: {len(content)} bytes are not JSON: {shown}") from error

    def _shown(self, what: object, limit: int) -> str:
        """Return what came as one line, without the token that it may echo."""
        cut = isinstance(what, bytes) and len(what) > _ERROR_BYTES
        told = (
            what[:_ERROR_BYTES].decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
        )
        if self._token:
            told = told.replace(self._token, "***")
            # What is cut off may have cut the token.
            told = told[: -len(self._token)] if cut else told
        return one_line(told, limit)


class _Resolver(AbstractResolver):
    """Looks names up as the other connections do."""

    def __init__(self) -> None:
        self.host = ""
        """The name that is being looked up."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.host = host
        try:
            found = await addresses_of(host)
        except UnresolvedError as error:
            self.host = ""
            raise OSError(str(error)) from error
        self.host = ""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _headers(token: str) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers


def _digests_bytes(chunks: int) -> int:
    return MAX_SHORT_BYTES + MAX_DIGEST_BYTES * chunks


def _connect_reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return str(error.os_error)
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


API_ERRORS = (HttpFailedError, RemoteProtocolError)
"""What any method of HttpApi may raise."""
