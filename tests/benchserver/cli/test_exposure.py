"""What `serve` says when others than this machine can reach it."""

from __future__ import annotations

import socket

import pytest

from benchserver.cli.exposure import exposure_line

LOOP = ("127.0.0.1", 5555)
WIDE = ("0.0.0.0", 5555)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
@pytest.mark.parametrize("has_token", [False, True])
def test_loopback_is_not_worth_a_line(host: str, has_token: bool) -> None:
    assert exposure_line(rpc=(host, 1), http=(host, 2), has_token=has_token) == ""


def test_both_ports_open() -> None:
    line = exposure_line(rpc=WIDE, http=("0.0.0.0", 8080), has_token=False)
    assert line == (
        "bench-server: warning: open to the network: tcp://0.0.0.0:5555 (ZMQ, which asks for no "
        "token), http://0.0.0.0:8080 (asks for no token): anyone who can reach and use it can read "
        "and change cached data and switch faults; restrict it with --host 127.0.0.1, "
        "--http-host 127.0.0.1, --http-token"
    )


def test_a_token_guards_http_alone() -> None:
    line = exposure_line(rpc=LOOP, http=("::", 8080), has_token=True)
    assert "http://[::]:8080 (asks for the token, but sends it unencrypted)" in line
    assert "tcp://" not in line
    assert "--http-token" not in line


@pytest.mark.parametrize("host", ["*", "eth0", "10.1.2.3", "fe80::1%eth0", "no such host", "\0"])
def test_what_is_not_surely_loopback_is_open(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror("unknown")

    if not host.startswith(("10", "fe80")):
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    line = exposure_line(rpc=(host, 1), http=LOOP, has_token=False)
    assert line.count("\n") == 0
    assert "restrict it with --host 127.0.0.1" in line


def test_a_name_with_one_foreign_address_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(*_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.1", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert "tcp://two:1 " in exposure_line(rpc=("two", 1), http=LOOP, has_token=False)
