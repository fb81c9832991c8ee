"""Addresses as users write them, in one form each; what cannot be an address is refused."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from benchserver.errors import UsageError, one_line

_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)
"""Names, IPv4 and IPv6 addresses; not ZMQ's `*`, which only a server can bind."""


def normalize_rpc_url(text: str) -> str:
    """Return `tcp://host:port` for that form or a bare `host:port`; UsageError for any other."""
    url = text.strip()
    if "://" not in url:
        url = f"tcp://{url}"
    parts = _split(url, "--rpc-url")
    if parts.scheme != "tcp":
        raise UsageError(
            f"--rpc-url {one_line(text, 80)}: scheme {parts.scheme}, expected tcp://host:port; "
            "gRPC servers are not supported"
        )
    user = parts.username is not None or parts.password is not None
    if parts.port is None or parts.path not in ("", "/") or parts.query or parts.fragment or user:
        raise UsageError(f"--rpc-url {one_line(text, 80)}: expected tcp://host:port")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"tcp://{host}:{parts.port}"


def normalize_http_url(text: str) -> str:
    """Return an http(s) base URL without a trailing slash; UsageError for anything else.

    A user or a password is refused: reports and errors show the URL.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--url must hold no user or password (it is not shown here); a server that asks for a "
            "token gets it with --http-token-file or BENCH_SERVER_HTTP_TOKEN"
        )
    parts = _split(url, "--url")
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise UsageError(
            f"--url {one_line(text, 80)}: expected http://host:port or https://host:port"
        )
    return url.rstrip("/")


def _split(url: str, option: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
        # As name resolution does, which refuses empty labels and those of over 63 characters.
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise UsageError(f"{option} {one_line(url, 80)}: {error}") from error
    if not parts.hostname or port == 0 or not _is_plain(url) or not _HOST.fullmatch(parts.hostname):
        raise UsageError(f"{option} {one_line(url, 80)}: expected a host and a port")
    return parts


def _is_plain(url: str) -> bool:
    return url.isascii() and not any(c.isspace() for c in url)
