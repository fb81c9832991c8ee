"""The HTTP client against a server of literal bytes on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchserver.client.http import API_ERRORS, MAX_SHORT_BYTES, HttpApi, HttpFailedError
from protocol.errors import RemoteProtocolError
from protocol.httpapi import HTTP_051, ServerStatus
from tests.benchserver.client.webpeer import (
    STATUS,
    TOKEN,
    answer,
    ask,
    clear_cache,
    refuse,
    requests_of,
    served,
)

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_version() -> None:
    assert await ask(answer(b'"0.5.6-g3e11e108"'), HttpApi.version) == "0.5.6-g3e11e108"


@pytest.mark.asyncio
async def test_a_status_of_registrations_and_locks() -> None:
    assert await ask(answer(json.dumps(STATUS).encode()), HttpApi.status) == ServerStatus(
        chunk_size=256,
        active_sessions=1,
        read_locked=2,
        write_locked=3,
        handle_instances=frozenset({17}),
        engine_instances=frozenset({18}),
    )


@pytest.mark.asyncio
async def test_the_configuration_comes_without_its_secrets() -> None:
    content = answer(b'{"mp": {"port": 1}, "http": {"token": "hunter2"}}')
    shown = {"mp": {"port": 1}, "http": {"token": "***"}}
    assert await ask(content, HttpApi.configuration) == shown


@pytest.mark.asyncio
async def test_transfer_mode() -> None:
    content = answer(b'{"mp": {"supported_transfer_mode": "auto"}}')
    assert await ask(content, HttpApi.transfer_mode) == "auto"


@pytest.mark.asyncio
async def test_requests_as_they_are_sent() -> None:
    async def main() -> list[bytes]:
        sums = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32] * 2}).encode())
        async with served(sums) as (api, server):
            digests = await api.checksums(block_ids=(4, 3, 2, 1), blocks_per_chunk=2, instance_id=9)
            assert digests == ("0" * 32, "0" * 32)
            await clear_cache(api)
            with pytest.raises(RemoteProtocolError):
                await api.version()
        return server.requests

    checksums, clear, version = await main()
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


@pytest.mark.asyncio
async def test_a_missing_digest_is_refused() -> None:
    content = answer(json.dumps({"status": "success", "chunk_checksums": ["0" * 32]}).encode())
    with pytest.raises(RemoteProtocolError, match="2 chunk_checksums"):
        await ask(content, lambda api: api.checksums(
            block_ids=(1, 2), blocks_per_chunk=1, instance_id=0
        ))  # fmt: skip


@pytest.mark.asyncio
async def test_another_status_than_200_is_shown_with_its_body() -> None:
    error = await refuse(answer(b"Traceback:\n  \x1b[31mboom", "500 Internal Server Error"))
    assert "/version: HTTP 500, expected 200: Traceback: \\x1b[31mboom" in str(error)
    assert str(error).startswith("GET http://127.0.0.1:")
    assert "HTTP 404, expected 200: nope" in str(await refuse(answer(b"nope", "404 Not Found")))


@pytest.mark.asyncio
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
async def test_an_answer_that_is_not_json(body: bytes, shown: str) -> None:
    text = str(await refuse(answer(body)))
    assert shown in text
    assert len(text) < 300


@pytest.mark.asyncio
async def test_half_an_answer() -> None:
    assert "ClientPayloadError" in str(await refuse(answer(b'"0.5', length=500)))


@pytest.mark.asyncio
@pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 64, b"HTTP/1.1 200"])
async def test_what_is_not_http(content: bytes) -> None:
    assert "GET http://127.0.0.1:" in str(await refuse(content))


@pytest.mark.asyncio
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
async def test_json_of_another_shape(
    method: Callable[[HttpApi], Awaitable[Any]], body: Any
) -> None:
    with pytest.raises(RemoteProtocolError):
        await ask(answer(json.dumps(body).encode()), method)
    assert RemoteProtocolError in API_ERRORS


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["0.5.6-\x1b[31m", "0.5.6\nfake line", "0.5.6-\ud800"])
async def test_a_version_is_printable_or_refused(text: str) -> None:
    try:
        version = await ask(answer(json.dumps(text).encode()), HttpApi.version)
    except RemoteProtocolError:
        return
    assert version.isprintable()


@pytest.mark.asyncio
@pytest.mark.usefixtures("never_late")
async def test_no_answer_in_time() -> None:
    error = await refuse(b"", timeout_s=0.05)
    assert str(error).endswith("/version: no answer within 0.05 s")


@pytest.mark.asyncio
async def test_an_answer_that_never_ends_in_time() -> None:
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


@pytest.mark.asyncio
async def test_nothing_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        text = await unreachable(f"http://127.0.0.1:{port}")
    assert f"GET http://127.0.0.1:{port}/version: cannot connect (" in text


@pytest.mark.asyncio
@pytest.mark.parametrize("extra", [0, 1])
async def test_answers_are_bounded(extra: int) -> None:
    content = answer(b'"' + b" " * (MAX_SHORT_BYTES - 7 + extra) + b'0.5.6"')
    if extra:
        assert "/version: the answer is longer than 65536 bytes" in str(await refuse(content))
    else:
        with pytest.raises(RemoteProtocolError):
            await ask(content, HttpApi.version)


@pytest.mark.asyncio
async def test_more_digests_may_be_longer() -> None:
    def sums(count: int) -> bytes:
        document = {"status": "success", "chunk_checksums": ["0" * 32] * count}
        return answer(json.dumps(document).encode())

    def ask_for(chunks: int) -> Callable[[HttpApi], Awaitable[Any]]:
        return lambda api: api.checksums(block_ids=range(chunks), blocks_per_chunk=1, instance_id=1)

    assert len(await ask(sums(50_000), ask_for(50_000))) == 50_000
    with pytest.raises(HttpFailedError, match="longer than 65600 bytes"):
        await ask(sums(50_000), ask_for(1))


@pytest.mark.asyncio
async def test_of_a_long_error_page_the_beginning_is_read() -> None:
    page = answer(b"so sorry " * (2 << 20), "500 Internal Server Error")
    tracemalloc.start()
    try:
        text = str(await refuse(page))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(page)  # one is the server's
    finally:
        tracemalloc.stop()
    assert "HTTP 500, expected 200: so sorry so sorry" in text
    assert len(text) < 300


@pytest.mark.asyncio
async def test_a_token_in_what_is_cut_off_is_not_shown() -> None:
    for spaces in range(4096 - len(TOKEN), 4098):
        page = b" " * spaces + TOKEN.encode() + b"x" * 5000
        text = str(await refuse(answer(page, "500 Internal Server Error"), token=TOKEN))
        assert "hunter" not in text


@pytest.mark.asyncio
async def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b"[" * 1_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    assert f"{len(packed)} bytes are not JSON" in str(await refuse(head.encode() + packed))
    (request,) = await requests_of(answer(b"{}"), HTTP_051, clear_cache)
    assert b"\r\nAccept-Encoding: identity\r\n" in request


@pytest.mark.asyncio
async def test_what_came_while_this_process_stood_still_is_in_time() -> None:
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


async def unreachable(url: str, timeout_s: float = 20) -> str:
    api = HttpApi(url, timeout_s=timeout_s)
    with pytest.raises(HttpFailedError) as caught:
        await api.version()
    await api.close()
    return str(caught.value)


@pytest.mark.asyncio
async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert await unreachable("http://host.example:1") == (
        "GET http://host.example:1/version: the name host.example does not resolve "
        "(Name or service not known)"
    )


@pytest.mark.asyncio
async def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(20) and [])
    # The loop waits for its threads, as the bench does not.
    threading.Timer(1.0, ended.set).start()
    assert await unreachable("http://host.example:1", timeout_s=0.1) == (
        "GET http://host.example:1/version: the name host.example does not resolve (no answer to "
        "that within 0.1 s)"
    )


@pytest.mark.asyncio
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert await ask(answer(b'"0.5.6"'), HttpApi.version) == "0.5.6"
