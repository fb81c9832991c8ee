"""The server that a run is made against, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchserver.errors import UsageError, one_line, os_reason
from protocol.errors import LocalProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server.  Times in seconds as users give them."""

    rpc_url: str
    http_url: str
    http_token: str = field(repr=False)
    """What HTTP requests bring; a secret, so no report shows it."""
    http_ca: str
    """A PEM file: whose certificates an https server may have; "": the system's authorities."""
    server_release: str
    timeout_s: float
    wait_ready_s: float
    needs_http: bool
    """False: a server without HTTP is fine, and nobody asks for digests."""
    own_server: bool
    """It is an embedded server that was started for this run."""

    def check(self) -> None:
        """Raise UsageError for anything that cannot work."""
        if self.http_token:
            # Loaded here, as below: wrong usage is told without the protocol.
            from protocol.httpapi import token_problem

            if problem := token_problem(self.http_token):
                raise UsageError(problem)
        if self.http_ca:
            _check_ca(self.http_ca, self.http_url)
        if self.server_release:
            from protocol.dialects import dialect_of

            try:
                dialect_of(self.server_release)
            except LocalProtocolError as error:
                raise UsageError(f"--server-release: {error}") from error


def _check_ca(path: str, http_url: str) -> None:
    if urlsplit(http_url).scheme != "https":
        raise UsageError(f"--http-ca is for an https --url, and that is {one_line(http_url, 80)}")
    # Loaded here: only https needs it.
    import ssl

    shown = one_line(path, 120)
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise UsageError(f"--http-ca {shown}: it holds no certificate in PEM form") from error
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "no path"
        raise UsageError(f"--http-ca {shown}: {reason}") from error
