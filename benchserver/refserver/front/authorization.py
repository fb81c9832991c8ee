"""Who may use the HTTP API of a server that has a token: `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac

SCHEME = "bearer"
CHALLENGE = 'Bearer realm="bench-server"'
"""Answer of a 401, as RFC 6750 wants it."""


def is_authorized(header: str, token: str) -> bool:
    """Tell whether an Authorization header brings the token; takes as long for any wrong one."""
    scheme, _, given = header.partition(" ")
    if scheme.lower() != SCHEME:
        return False
    return hmac.compare_digest(given.strip(" ").encode("utf-8", "surrogateescape"), token.encode())
