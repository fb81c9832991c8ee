"""Host names to addresses, in the event loop's threads: a dead name server holds up nobody.

A look-up cannot be interrupted: a caller that gives up leaves its thread to end by itself, and
the end of the process does not wait for it (`benchserver.ending`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from benchserver.errors import one_line, os_reason


class UnresolvedError(Exception):
    """A name without an address; the text is one line."""


def unresolved(host: str, reason: str) -> UnresolvedError:
    """Return the error for a name that does not resolve."""
    return UnresolvedError(
        f"the name {one_line(host, 80)} does not resolve ({one_line(reason, 200)})"
    )


def is_address(host: str) -> bool:
    """Tell an address from a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses of a host, IPv4 or IPv6, in the system's order; UnresolvedError."""
    if is_address(host):
        return (host,)
    loop = asyncio.get_running_loop()
    try:
        # Whatever this machine's own addresses are: ::1 is reached without another IPv6 address.
        infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else one_line(error)
        raise unresolved(host, reason) from error
    found = dict.fromkeys(str(info[4][0]) for info in infos if info[0] in _FAMILIES)
    if not found:
        raise unresolved(host, "it has no IP address")
    return tuple(found)


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def in_url(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
