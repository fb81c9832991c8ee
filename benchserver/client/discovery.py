"""Which server is it?  Reach it, read its release, choose dialect and transfer mode.

Operation ids differ by release, and a wrong guess can clear a cache or kill a server (0.5.5 and
earlier): nothing is sent over RPC before the release is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from benchserver.client.http import API_ERRORS, HttpApi, HttpFailedError
from benchserver.clock import NS_PER_S, Clock
from benchserver.config import TransferChoice, is_loopback
from benchserver.errors import FatalError, UsageError, one_line, os_reason
from protocol.dialects import Dialect, dialect_of, known_releases, release_of
from protocol.errors import LocalProtocolError

_RETRY_NS = NS_PER_S // 4
_RELEASE_REMEDY = "say it with --server-release"


async def await_port(
    host: str, port: int, *, clock: Clock, wait_s: float, timeout_s: float
) -> None:
    """Return once something listens; FatalError if nothing does within `wait_s`."""
    deadline_ns = clock.now_ns() + int(wait_s * NS_PER_S)
    while True:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout_s)
        except (OSError, asyncio.TimeoutError, TimeoutError) as error:
            if clock.now_ns() >= deadline_ns:
                reason = os_reason(error) if isinstance(error, OSError) else "no answer"
                shown = f"[{host}]" if ":" in host else host
                raise FatalError(
                    f"cannot reach the server at tcp://{shown}:{port} ({reason}); start it, "
                    "correct --rpc-url, or give it time with --wait-ready SECS"
                ) from error
            await clock.sleep_ns(_RETRY_NS)
        else:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return


async def read_version(http: HttpApi, *, clock: Clock, wait_s: float) -> str:
    """Return the server's version text; API_ERRORS once `wait_s` has passed without one."""
    deadline_ns = clock.now_ns() + int(wait_s * NS_PER_S)
    while True:
        try:
            return await http.version()
        except API_ERRORS:
            if clock.now_ns() >= deadline_ns:
                raise
        await clock.sleep_ns(_RETRY_NS)


def choose_dialect(version: str, said: str) -> Dialect:
    """Return the dialect of the release that the user said, or that the version text names.

    Raises UsageError for an unknown --server-release, FatalError for an unknown server.
    """
    if said:
        try:
            return dialect_of(said)
        except LocalProtocolError as error:
            raise UsageError(f"--server-release: {error}") from error
    release = release_of(version)
    try:
        return dialect_of(release)
    except LocalProtocolError as error:
        raise FatalError(
            f"the server says it is version {one_line(version, 60)}, which bench-server does not "
            f"know (known: {', '.join(known_releases())}); if it speaks the wire of one of them, "
            f"{_RELEASE_REMEDY}"
        ) from error


def no_version_error(error: Exception) -> FatalError:
    """Return the error for a server whose release cannot be read."""
    refused = isinstance(error, HttpFailedError) and error.refused
    hint = "correct --url, or " if refused else ""
    return FatalError(
        f"the server's release is unknown: {one_line(error)}; {hint}{_RELEASE_REMEDY} "
        "(and --no-http if it has no HTTP API)"
    )


def is_local(host: str) -> bool:
    """Tell whether a host is this machine: its address can be bound here."""
    if is_loopback(host):
        return True
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, proto, _, address in infos:
        with contextlib.suppress(OSError), socket.socket(family, kind, proto) as probe:
            probe.bind(address)
            return True
    return False


def choose_transfer(asked: TransferChoice, served: str, groups: int) -> TransferChoice:
    """Return the mode to register with; `served` is the server's mode, or "" if it is not known.

    Raises FatalError, naming the server's flag, if it does not serve what was asked for.
    """
    if asked is TransferChoice.AUTO:
        if served != TransferChoice.ENGINE_DRIVEN.value:
            return TransferChoice.LMCACHE_DRIVEN
        if groups > 1:
            raise FatalError(
                f"the server serves engine_driven alone, which carries one KV layer group, and "
                f"the shape spec has {groups}; start it with --supported-transfer-mode auto"
            )
        return TransferChoice.ENGINE_DRIVEN
    if served in ("", "auto", asked.value):
        return asked
    raise FatalError(
        f"--transfer-mode {asked.value}, but the server serves {one_line(served, 40)}; start it "
        f"with --supported-transfer-mode auto (or {asked.value})"
    )
