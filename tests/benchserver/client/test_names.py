"""Host names to addresses: in the order of the system, off the event loop, or one line of error."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from benchserver.client.names import UnresolvedError, addresses_of, in_url, is_address, unresolved

V4, V6 = socket.AF_INET, socket.AF_INET6


def resolving(monkeypatch: pytest.MonkeyPatch, *infos: tuple[Any, str]) -> None:
    found = [(family, socket.SOCK_STREAM, 6, "", (address, 0)) for family, address in infos]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise AssertionError("it was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert await addresses_of(host) == (host,)


@pytest.mark.asyncio
async def test_addresses_keep_their_order_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, (V6, "::2"), (V4, "10.0.0.1"), (V6, "::2"), (socket.AF_UNIX, "x"))
    assert await addresses_of("host.example") == ("::2", "10.0.0.1")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service\nnot known"), "Name or service"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
async def test_a_name_that_does_not_resolve(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(UnresolvedError) as caught:
        await addresses_of("host.example")
    assert str(caught.value).startswith(f"the name host.example does not resolve ({reason}")
    assert str(caught.value).isprintable()


@pytest.mark.asyncio
async def test_a_name_without_an_ip_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, (socket.AF_UNIX, "x"))
    with pytest.raises(UnresolvedError, match="it has no IP address"):
        await addresses_of("host.example")


@pytest.mark.asyncio
async def test_the_event_loop_goes_on_while_a_name_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        assert go.wait(20)
        return [(V4, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    asking = asyncio.create_task(addresses_of("host.example"))
    await asyncio.sleep(0)
    assert not asking.done()
    go.set()
    assert await asking == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("host", "address", "shown"),
    [
        ("127.0.0.1", True, "127.0.0.1"),
        ("::1", True, "[::1]"),
        ("host.example", False, "host.example"),
        ("1.2.3", False, "1.2.3"),
        ("", False, ""),
    ],
)
def test_addresses_and_names_in_urls(host: str, address: bool, shown: str) -> None:
    assert is_address(host) is address
    assert in_url(host) == shown


def test_a_long_name_is_cut() -> None:
    text = str(unresolved("n" * 500 + "\n", "why"))
    assert len(text) < 150
    assert text.isprintable()
