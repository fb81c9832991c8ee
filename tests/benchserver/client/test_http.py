"""The HTTP client against a server of literal bytes on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchserver.client.http import API_ERRORS, MAX_SHORT_BYTES, HttpApi, HttpFailedError
from protocol.errors import RemoteProtocolError
from protocol.httpapi import HTTP_041, HTTP_045, HTTP_051, HttpRoutes, ServerStatus
from tests.tlsstage import OPENSSL, Certificate, make_certificate

pytestmark = pytest.mark.usefixtures("leak_free")

STATUS = {
    "chunk_size": 256,
    "active_sessions": 1,
    "storage_manager": {"l1_manager": {"read_locked_count": 2, "write_locked_count": 3}},
    "cache_context_meta": {"17": {}},
    "registered_non_cuda_instance_ids": [18],
}


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


class Server:
    """Sends one answer to every request, then closes the connection; b"" never answers."""

    def __init__(self, content: bytes, until: bytes = b"\r\n\r\n") -> None:
        self._content = content
        self._until = until
        self.requests: list[bytes] = []
        self._hanging = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(self._until)
        except asyncio.IncompleteReadError:
            writer.close()
            return
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.splitlines()
                if line[:15] == b"Content-Length:"
            ),
            0,
        )
        self.requests.append(head + await reader.readexactly(length))
        if not self._content:
            await self._hanging.wait()
        try:
            writer.write(self._content)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def release(self) -> None:
        self._hanging.set()


@asynccontextmanager
async def served(
    content: bytes,
    timeout_s: float = 20.0,
    token: str = "",
    certificate: Certificate | None = None,
    ca: str = "",
    scheme: str = "",
    until: bytes = b"\r\n\r\n",
) -> AsyncIterator[tuple[HttpApi, Server]]:
    server = Server(content, until)
    tls = certificate.server_context() if certificate else None
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    scheme = scheme or ("https" if certificate else "http")
    api = HttpApi(f"{scheme}://127.0.0.1:{port}/", timeout_s=timeout_s, token=token, ca=ca)
    try:
        yield api, server
    finally:
        await api.close()
        server.release()
        listener.close()
        await listener.wait_closed()


def ask(content: bytes, method: Callable[[HttpApi], Awaitable[Any]], **kwargs: Any) -> Any:
    """Return what a method gives, against a server with one answer."""

    async def main() -> Any:
        async with served(content, **kwargs) as (api, _):
            return await method(api)

    return asyncio.run(main())


def refuse(content: bytes, **kwargs: Any) -> HttpFailedError:
    with pytest.raises(HttpFailedError) as caught:
        ask(content, HttpApi.version, **kwargs)
    assert str(caught.value).isprintable()
    return caught.value


def test_version() -> None:
    assert ask(answer(b'"0.5.6-g3e11e108"'), HttpApi.version) == "0.5.6-g3e11e108"


def test_a_status_of_registrations_and_locks() -> None:
    assert ask(answer(json.dumps(STATUS).encode()), HttpApi.status) == ServerStatus(
        chunk_size=256,
        active_sessions=1,
        read_locked=2,
        write_locked=3,
        handle_instances=frozenset({17}),
        engine_instances=frozenset({18}),
    )


def test_transfer_mode() -> None:
    content = answer(b'{"mp": {"supported_transfer_mode": "auto"}}')
    assert ask(content, HttpApi.transfer_mode) == "auto"


def test_requests_as_they_are_sent() -> None:
    async def main() -> list[bytes]:
        sums = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32] * 2}).encode())
        async with served(sums) as (api, server):
            digests = await api.checksums(block_ids=(4, 3, 2, 1), blocks_per_chunk=2, instance_id=9)
            assert digests == ("0" * 32, "0" * 32)
            await api.clear()
            with pytest.raises(RemoteProtocolError):
                await api.version()
        return server.requests

    checksums, clear, version = asyncio.run(main())
    assert checksums.startswith(b"POST /cache/checksums HTTP/1.1\r\n")
    assert json.loads(checksums.split(b"\r\n\r\n")[1]) == {
        "block_ids": [4, 3, 2, 1],
        "chunk_size": 2,
        "instance_id": 9,
        "layerwise": False,
    }
    assert clear.startswith(b"POST /cache/clear HTTP/1.1\r\n")
    assert clear.endswith(b"\r\n\r\n{}")
    assert version.startswith(b"GET /version HTTP/1.1\r\n")


def test_a_missing_digest_is_refused() -> None:
    content = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32]}).encode())
    with pytest.raises(RemoteProtocolError, match="2 chunk_checksums"):
        ask(content, lambda api: api.checksums(
            block_ids=(1, 2), blocks_per_chunk=1, instance_id=0
        ))  # fmt: skip


def test_another_status_than_200_is_shown_with_its_body() -> None:
    error = refuse(answer(b"Traceback:\n  \x1b[31mboom", "500 Internal Server Error"))
    assert "/version: HTTP 500, expected 200: Traceback: \\x1b[31mboom" in str(error)
    assert str(error).startswith("GET http://127.0.0.1:")
    assert "HTTP 404, expected 200: nope" in str(refuse(answer(b"nope", "404 Not Found")))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"status": "suc', '15 bytes are not JSON: {"status": "suc'),
        (b"", "0 bytes are not JSON"),
        (b"\xff\xfe", "2 bytes are not JSON"),
        (b"[" * 4000, "4000 bytes are not JSON"),
        (
            b"[" * 60_000,
            "60000 bytes of JSON with 60000 brackets and 0 commas, more than any answer",
        ),
        (b"9" * 5000, "5000 bytes are not JSON"),
        (b"<html>\r\n" + b"x" * 500, "508 bytes are not JSON: <html> xxx"),
    ],
)
def test_an_answer_that_is_not_json(body: bytes, shown: str) -> None:
    text = str(refuse(answer(body)))
    assert shown in text
    assert len(text) < 300


def test_half_an_answer() -> None:
    assert "ClientPayloadError" in str(refuse(answer(b'"0.5', length=500)))


@pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 64, b"HTTP/1.1 200"])
def test_what_is_not_http(content: bytes) -> None:
    assert "GET http://127.0.0.1:" in str(refuse(content))


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (HttpApi.version, {"version": "0.5.6"}),
        (HttpApi.version, ""),
        (HttpApi.version, None),
        (HttpApi.status, []),
        (HttpApi.status, {**STATUS, "active_sessions": "1"}),
        (HttpApi.transfer_mode, {"mp": "auto"}),
    ],
)
def test_json_of_another_shape(method: Callable[[HttpApi], Awaitable[Any]], body: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        ask(answer(json.dumps(body).encode()), method)
    assert RemoteProtocolError in API_ERRORS


@pytest.mark.parametrize("text", ["0.5.6-\x1b[31m", "0.5.6\nfake line", "0.5.6-\ud800"])
def test_a_version_is_printable_or_refused(text: str) -> None:
    try:
        version = ask(answer(json.dumps(text).encode()), HttpApi.version)
    except RemoteProtocolError:
        return
    assert version.isprintable()


@pytest.mark.usefixtures("never_late")
def test_no_answer_in_time() -> None:
    error = refuse(b"", timeout_s=0.05)
    assert str(error).endswith("/version: no answer within 0.05 s")


def test_an_answer_that_never_ends_in_time() -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(b'"0', length=10))
            await done.wait()
            writer.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        api = HttpApi(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(HttpFailedError, match=r"no answer within 0\.1 s"):
            await api.version()
        await api.close()
        done.set()
        listener.close()
        await listener.wait_closed()

    asyncio.run(main())


def test_nothing_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        async def main() -> None:
            api = HttpApi(f"http://127.0.0.1:{port}", timeout_s=20)
            try:
                await api.version()
            finally:
                await api.close()

        with pytest.raises(HttpFailedError) as caught:
            asyncio.run(main())
    assert f"GET http://127.0.0.1:{port}/version: cannot connect (" in str(caught.value)


@pytest.mark.parametrize("extra", [0, 1])
def test_answers_are_bounded(extra: int) -> None:
    content = answer(b'"' + b" " * (MAX_SHORT_BYTES - 7 + extra) + b'0.5.6"')
    if extra:
        assert "/version: the answer is longer than 65536 bytes" in str(refuse(content))
    else:
        with pytest.raises(RemoteProtocolError):
            ask(content, HttpApi.version)


def test_more_digests_may_be_longer() -> None:
    def sums(count: int) -> bytes:
        document = {"status": "success", "chunk_checksums": ["0" * 32] * count}
        return answer(json.dumps(document).encode())

    def ask_for(chunks: int) -> Callable[[HttpApi], Awaitable[Any]]:
        return lambda api: api.checksums(block_ids=range(chunks), blocks_per_chunk=1, instance_id=1)

    assert len(ask(sums(50_000), ask_for(50_000))) == 50_000
    with pytest.raises(HttpFailedError, match="longer than 65600 bytes"):
        ask(sums(50_000), ask_for(1))


def test_of_a_long_error_page_the_beginning_is_read() -> None:
    page = answer(b"so sorry " * (2 << 20), "500 Internal Server Error")
    tracemalloc.start()
    try:
        text = str(refuse(page))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(page)  # one is the server's
    finally:
        tracemalloc.stop()
    assert "HTTP 500, expected 200: so sorry so sorry" in text
    assert len(text) < 300


def test_a_token_in_what_is_cut_off_is_not_shown() -> None:
    for spaces in range(4096 - len(TOKEN), 4098):
        page = b" " * spaces + TOKEN.encode() + b"x" * 5000
        text = str(refuse(answer(page, "500 Internal Server Error"), token=TOKEN))
        assert "hunter" not in text


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b"[" * 1_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    assert f"{len(packed)} bytes are not JSON" in str(refuse(head.encode() + packed))
    (request,) = requests_of(answer(b"{}"), HTTP_051, HttpApi.clear)
    assert b"\r\nAccept-Encoding: identity\r\n" in request


def test_what_came_while_this_process_stood_still_is_in_time() -> None:
    async def main() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            time.sleep(0.5)  # noqa: ASYNC251 - this process stands still, which is both
            writer.write(answer(b'"0.5.6"'))
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        api = HttpApi(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", timeout_s=0.1)
        assert await api.version() == "0.5.6"
        await api.close()
        listener.close()
        await listener.wait_closed()

    asyncio.run(main())


def unreachable(url: str, timeout_s: float = 20) -> str:
    async def main() -> None:
        api = HttpApi(url, timeout_s=timeout_s)
        try:
            await api.version()
        finally:
            await api.close()

    with pytest.raises(HttpFailedError) as caught:
        asyncio.run(main())
    return str(caught.value)


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert unreachable("http://host.example:1") == (
        "GET http://host.example:1/version: the name host.example does not resolve "
        "(Name or service not known)"
    )


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(20) and [])
    # The loop waits for its threads, as the bench does not.
    threading.Timer(1.0, ended.set).start()
    assert unreachable("http://host.example:1", timeout_s=0.1) == (
        "GET http://host.example:1/version: the name host.example does not resolve (no answer to "
        "that within 0.1 s)"
    )


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(answer(b'"0.5.6"'), HttpApi.version) == "0.5.6"


# Older releases


def requests_of(
    content: bytes, routes: HttpRoutes, method: Callable[[HttpApi], Awaitable[Any]], **kwargs: Any
) -> list[bytes]:
    """Return the requests that a method makes of a release with these routes."""

    async def main() -> list[bytes]:
        async with served(content, **kwargs) as (api, server):
            api.routes = routes
            await method(api)
        return server.requests

    return asyncio.run(main())


def test_digests_by_query() -> None:
    sums = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32] * 2}).encode())
    (request,) = requests_of(
        sums,
        HTTP_045,
        lambda api: api.checksums(block_ids=(4, 3, 2, 1), blocks_per_chunk=2, instance_id=9),
    )
    query = b"block_ids=4,3,2,1&chunk_size=2&instance_id=9&layerwise=false"
    assert request.startswith(b"GET /kvcache/check?" + query + b" HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("chunks", "blocks_per_chunk", "parts"),
    [(32, 16, [512]), (33, 16, [512, 16]), (3, 300, [300, 300, 300]), (2, 600, [600, 600])],
)
def test_long_queries_come_in_parts(chunks: int, blocks_per_chunk: int, parts: list[int]) -> None:
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

    assert asyncio.run(main()) == tuple(f"{chunk:032x}" for chunk in range(chunks))
    assert [len(ids) for ids in asked] == parts


def test_other_pages_of_older_releases() -> None:
    (clear,) = requests_of(answer(b"{}"), HTTP_045, HttpApi.clear)
    assert clear.startswith(b"POST /clear-cache HTTP/1.1\r\n")
    (clear,) = requests_of(answer(b"{}"), HTTP_041, HttpApi.clear)
    assert clear.startswith(b"POST /api/clear-cache HTTP/1.1\r\n")
    mode = answer(b'{"mp": {"transfer_mode": "non_gpu"}}')
    (config,) = requests_of(mode, HTTP_045, HttpApi.transfer_mode)
    assert config.startswith(b"GET /conf HTTP/1.1\r\n")
    (status,) = requests_of(answer(json.dumps(STATUS).encode()), HTTP_041, HttpApi.status)
    assert status.startswith(b"GET /api/status HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "method",
    [
        HttpApi.version,
        HttpApi.transfer_mode,
        lambda api: api.checksums(block_ids=(1,), blocks_per_chunk=1, instance_id=0),
    ],
)
def test_a_page_that_a_release_lacks_is_not_asked_for(
    method: Callable[[HttpApi], Awaitable[Any]],
) -> None:
    with pytest.raises(
        HttpFailedError, match=r"^http://127\.0\.0\.1:\d+: this release has no such"
    ):
        requests_of(answer(b"{}"), HTTP_041, method)


# The token

TOKEN = "hunter2/hunter2=="


def test_the_token_is_sent_with_every_request() -> None:
    async def everything(api: HttpApi) -> None:
        await api.clear()
        with pytest.raises(RemoteProtocolError):
            await api.status()

    requests = requests_of(answer(b"{}"), HTTP_051, everything, token=TOKEN)
    assert [
        request.count(b"\r\nAuthorization: Bearer hunter2/hunter2==\r\n") for request in requests
    ] == [1, 1]
    requests = requests_of(answer(b"{}"), HTTP_051, everything)
    assert not any(b"uthorization" in request for request in requests)


def test_a_server_that_wants_a_token() -> None:
    refusal = answer(b'{"detail": "no"}', "401 Unauthorized")
    remedy = "; give it with --http-token-file or in BENCH_SERVER_HTTP_TOKEN"
    text = str(refuse(refusal))
    assert text.endswith("/version: HTTP 401, it wants a bearer token, and none was given" + remedy)
    text = str(refuse(refusal, token=TOKEN))
    assert text.endswith(
        "/version: HTTP 401, it wants a bearer token, and this one is not accepted" + remedy
    )


@pytest.mark.parametrize(
    "content",
    [
        answer(b"", "401 Unauthorized"),
        answer(b"nope", "500 Internal Server Error"),
        answer(b"nope"),
        answer(b"nope", length=50),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        # Some servers show a failed request with its headers.
        answer(b"x" * 155 + TOKEN.encode(), "500 Internal Server Error"),
        answer(b"Authorization: Bearer " + TOKEN.encode()),
        f"HTTP/1.1 {TOKEN}\r\n\r\n".encode(),
    ],
)
def test_the_token_is_in_no_error(content: bytes) -> None:
    error = refuse(content, token=TOKEN)
    assert "hunter2" not in str(error) + repr(error)


def test_a_redirect_is_not_followed() -> None:
    async def main() -> tuple[str, list[bytes]]:
        async with served(answer(b'"0.5.6"')) as (target, elsewhere):
            moved = (
                f"HTTP/1.1 307 Moved\r\nLocation: {target._base}/version\r\n"
                "Content-Length: 0\r\nConnection: close\r\n\r\n"
            )
            async with served(moved.encode(), token=TOKEN) as (api, _):
                with pytest.raises(HttpFailedError) as caught:
                    await api.version()
            return str(caught.value), elsewhere.requests

    text, seen_elsewhere = asyncio.run(main())
    assert "/version: HTTP 307, expected 200" in text
    assert seen_elsewhere == []


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if OPENSSL is None:
        pytest.skip("no openssl to make a certificate with")
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


def test_https_with_an_authority_of_its_own(certificate: Certificate) -> None:
    right = {"certificate": certificate, "ca": str(certificate.path)}
    assert ask(answer(b'"0.5.6"'), HttpApi.version, **right) == "0.5.6"


def test_https_with_an_authority_of_the_system(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))  # where OpenSSL looks for them
    assert ask(answer(b'"0.5.6"'), HttpApi.version, certificate=certificate) == "0.5.6"


def test_a_certificate_that_nobody_signed(certificate: Certificate) -> None:
    text = str(refuse(answer(b'"0.5.6"'), certificate=certificate, token=TOKEN))
    assert text.startswith("GET https://127.0.0.1:")
    assert text.endswith(
        "/version: the server's certificate is not accepted (self-signed certificate); give the "
        "authority that signed it with --http-ca, or correct --url"
    )


def test_a_certificate_of_another_name(tmp_path: Path, certificate: Certificate) -> None:
    other = make_certificate(tmp_path, "DNS:other.example")
    text = str(refuse(answer(b'"0.5.6"'), certificate=other, ca=str(other.path)))
    assert "certificate is not accepted (IP address mismatch, certificate is not valid" in text
    # And one that another authority signed than the one that is trusted.
    text = str(refuse(answer(b'"0.5.6"'), certificate=other, ca=str(certificate.path)))
    assert "certificate is not accepted (self-signed certificate); give the authority" in text


def test_https_where_there_is_none() -> None:
    text = str(refuse(b"HTTP/1.1 400 Bad Request\r\n\r\n", scheme="https", until=b"\x16"))
    assert "TLS failed (" in text
    assert text.endswith("); is it an http:// server?")


def test_http_where_there_is_tls(certificate: Certificate) -> None:
    assert "GET http://127.0.0.1:" in str(
        refuse(answer(b'"0.5.6"'), certificate=certificate, scheme="http")
    )
