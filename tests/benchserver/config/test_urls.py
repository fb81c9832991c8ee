"""Addresses in one form each, and all that is not one."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.config.urls import normalize_http_url, normalize_rpc_url
from benchserver.errors import UsageError


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("tcp://localhost:5555", "tcp://localhost:5555"),
        ("localhost:5555", "tcp://localhost:5555"),
        ("  10.0.0.1:1 ", "tcp://10.0.0.1:1"),
        ("TCP://Host.Example:65535/", "tcp://host.example:65535"),
        ("[::1]:5555", "tcp://[::1]:5555"),
        ("tcp://[fe80::1]:5555", "tcp://[fe80::1]:5555"),
    ],
)
def test_rpc_urls(text: str, url: str) -> None:
    assert normalize_rpc_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a host and a port"),
        ("localhost", "expected tcp://host:port"),
        (":5555", "expected a host and a port"),
        ("tcp://", "expected a host and a port"),
        ("localhost:", "expected tcp://host:port"),
        ("localhost:0", "expected a host and a port"),
        ("localhost:65536", "Port out of range 0-65535"),
        ("localhost:-1", "Port could not be cast to integer value"),
        ("localhost:5x", "Port could not be cast to integer value"),
        ("localhost:٥٥٥٥", "Port could not be cast to integer value"),
        ("grpc://localhost:5555", "scheme grpc, expected tcp://host:port; gRPC"),
        ("http://localhost:5555", "scheme http, expected tcp://host:port"),
        ("ipc:///tmp/x", "expected a host and a port"),
        ("tcp://localhost:5555/x", "expected tcp://host:port"),
        ("tcp://localhost:5555?x=1", "expected tcp://host:port"),
        ("tcp://localhost:5555#x", "expected tcp://host:port"),
        ("tcp://me@localhost:5555", "expected tcp://host:port"),
        ("tcp://:pw@localhost:5555", "expected tcp://host:port"),
        ("tcp://local host:5555", "expected a host and a port"),
        ("tcp://*:5555", "expected a host and a port"),
        ("tcp://local\nhost:5555", "expected a host and a port"),
        ("tcp://höst:5555", "expected a host and a port"),
        ("tcp://[::1:5555", "Invalid IPv6 URL"),
        ("tcp://a..b:5555", "label"),
        (f"tcp://{'a' * 64}:5555", "label"),
    ],
)
def test_bad_rpc_urls(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalize_rpc_url(text)
    assert str(caught.value).startswith("--rpc-url ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8080", "http://localhost:8080"),
        ("localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080/", "http://localhost:8080"),
        ("https://host/prefix/", "https://host/prefix"),
        (" http://[::1]:8080 ", "http://[::1]:8080"),
    ],
)
def test_http_urls(text: str, url: str) -> None:
    assert normalize_http_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "http://:8080",
        "tcp://localhost:8080",
        "file:///etc/passwd",
        "http://localhost:0",
        "http://localhost:65536",
        "http://localhost:8080/?a=b",
        "http://localhost:8080/#a",
        "http://local host",
        "http://höst",
        "http://a..b",
        "http://user@localhost",
    ],
)
def test_bad_http_urls(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--url "):
        normalize_http_url(text)


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_a_usage_error(text: str) -> None:
    for normalize in (normalize_rpc_url, normalize_http_url):
        with contextlib.suppress(UsageError):
            url = normalize(text)
            assert normalize(url) == url
            assert urlsplit(url).hostname


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@host:1", "u:hunter2@host:x", "https://hunter2@", "ftp://hunter2@x/"]
)
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match=r"^--url must hold no user or password ") as caught:
        normalize_http_url(url)
    assert "hunter2" not in str(caught.value)
