"""The HTTP client, its token and TLS: what is sent, what is trusted, what no error shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.client.http import HttpApi, HttpFailedError
from protocol.errors import RemoteProtocolError
from protocol.httpapi import HTTP_051
from tests.benchserver.client.webpeer import (
    TOKEN,
    answer,
    ask,
    clear_cache,
    refuse,
    requests_of,
    served,
)
from tests.tlsstage import OPENSSL, Certificate, make_certificate

pytestmark = pytest.mark.usefixtures("leak_free")


@pytest.mark.asyncio
async def test_the_token_is_sent_with_every_request() -> None:
    async def everything(api: HttpApi) -> None:
        await clear_cache(api)
        with pytest.raises(RemoteProtocolError):
            await api.status()

    requests = await requests_of(answer(b"{}"), HTTP_051, everything, token=TOKEN)
    assert [
        request.count(b"\r\nAuthorization: Bearer hunter2/hunter2==\r\n") for request in requests
    ] == [1, 1]
    requests = await requests_of(answer(b"{}"), HTTP_051, everything)
    assert not any(b"uthorization" in request for request in requests)


@pytest.mark.asyncio
async def test_a_server_that_wants_a_token() -> None:
    refusal = answer(b'{"detail": "no"}', "401 Unauthorized")
    remedy = "; give it with --http-token-file or in BENCH_SERVER_HTTP_TOKEN"
    text = str(await refuse(refusal))
    assert text.endswith("/version: HTTP 401, it wants a bearer token, and none was given" + remedy)
    text = str(await refuse(refusal, token=TOKEN))
    assert text.endswith(
        "/version: HTTP 401, it wants a bearer token, and this one is not accepted" + remedy
    )


@pytest.mark.asyncio
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
async def test_the_token_is_in_no_error(content: bytes) -> None:
    error = await refuse(content, token=TOKEN)
    assert "hunter2" not in str(error) + repr(error)


@pytest.mark.asyncio
async def test_a_redirect_is_not_followed() -> None:
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

    text, seen_elsewhere = await main()
    assert "/version: HTTP 307, expected 200" in text
    assert seen_elsewhere == []


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if OPENSSL is None:
        pytest.skip("no openssl to make a certificate with")
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@pytest.mark.asyncio
async def test_https_with_an_authority_of_its_own(certificate: Certificate) -> None:
    right = {"certificate": certificate, "ca": str(certificate.path)}
    assert await ask(answer(b'"0.5.6"'), HttpApi.version, **right) == "0.5.6"


@pytest.mark.asyncio
async def test_https_with_an_authority_of_the_system(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))  # where OpenSSL looks for them
    assert await ask(answer(b'"0.5.6"'), HttpApi.version, certificate=certificate) == "0.5.6"


@pytest.mark.asyncio
async def test_a_certificate_that_nobody_signed(certificate: Certificate) -> None:
    text = str(await refuse(answer(b'"0.5.6"'), certificate=certificate, token=TOKEN))
    assert text.startswith("GET https://127.0.0.1:")
    assert text.endswith(
        "/version: the server's certificate is not accepted (self-signed certificate); give the "
        "authority that signed it with --http-ca, or correct --url"
    )


@pytest.mark.asyncio
async def test_a_certificate_of_another_name(tmp_path: Path, certificate: Certificate) -> None:
    other = make_certificate(tmp_path, "DNS:other.example")
    text = str(await refuse(answer(b'"0.5.6"'), certificate=other, ca=str(other.path)))
    assert "certificate is not accepted (IP address mismatch, certificate is not valid" in text
    # And one that another authority signed than the one that is trusted.
    text = str(await refuse(answer(b'"0.5.6"'), certificate=other, ca=str(certificate.path)))
    assert "certificate is not accepted (self-signed certificate); give the authority" in text


@pytest.mark.asyncio
async def test_https_where_there_is_none() -> None:
    text = str(await refuse(b"HTTP/1.1 400 Bad Request\r\n\r\n", scheme="https", until=b"\x16"))
    assert "TLS failed (" in text
    assert text.endswith("); is it an http:// server?")


@pytest.mark.asyncio
async def test_http_where_there_is_tls(certificate: Certificate) -> None:
    assert "GET http://127.0.0.1:" in str(
        await refuse(answer(b'"0.5.6"'), certificate=certificate, scheme="http")
    )
