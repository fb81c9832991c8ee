"""What a server that listens beyond this machine opens to others: one line, said at its start."""

from __future__ import annotations

import ipaddress
import socket


def exposure_line(*, rpc: tuple[str, int], http: tuple[str, int], has_token: bool) -> str:
    """Return the warning for these (host, port) pairs, or "" if only this machine reaches both."""
    opened, remedies = [], []
    if not _is_loopback(rpc[0]):
        opened.append(f"tcp://{shown_host(rpc[0])}:{rpc[1]} (ZMQ, which asks for no token)")
        remedies.append("--host 127.0.0.1")
    if not _is_loopback(http[0]):
        guard = "asks for the token, but sends it unencrypted" if has_token else "asks for no token"
        opened.append(f"http://{shown_host(http[0])}:{http[1]} ({guard})")
        remedies.append("--http-host 127.0.0.1")
        remedies += [] if has_token else ["--http-token"]
    if not opened:
        return ""
    return (
        f"bench-server: warning: open to the network: {', '.join(opened)}: anyone who can reach "
        "and use it can read and change cached data and switch faults; "
        f"restrict it with {', '.join(remedies)}"
    )


def _is_loopback(host: str) -> bool:
    """Tell whether every address of a host is this machine's own; what is unknown is not."""
    try:
        found = socket.getaddrinfo(host, None)
        return bool(found) and all(_is_local(str(entry[4][0])) for entry in found)
    except (OSError, UnicodeError, ValueError):
        return False


def _is_local(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def shown_host(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
