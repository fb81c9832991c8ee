"""Which server is it?  Reach it, read its release, choose the dialect.

Operation ids differ by release, and a wrong guess can clear a cache or kill a server (0.5.5 and
earlier): nothing but the harmless questions of `protocol.probe` is sent over RPC before the
release is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any

from benchserver.client.connection import BadAnswerError, CallFailedError, Connection, NoAnswerError
from benchserver.client.http import API_ERRORS, HttpApi
from benchserver.client.names import UnresolvedError, addresses_of, in_url, unresolved
from benchserver.clock import NS_PER_S, Clock
from benchserver.config.target import Target
from benchserver.errors import FatalError, UsageError, one_line, os_reason
from benchserver.tasks import OutOfTimeError, within
from protocol.dialect import Dialect
from protocol.dialects import DIALECTS, dialect_of, known_releases, release_of
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.ops import Op
from protocol.probe import NO_ANSWER, Group, Question, confirmation, probe

_RETRY_NS = NS_PER_S // 4
_PROBE_ANSWER_WITHIN_S = 3.0
"""A server that knows a question answers it within milliseconds, a busy one within seconds."""

_REMEDY = "say it with --server-release"
_NO_ZMQ = (
    "something listens at --rpc-url, but it does not speak ZMQ: no LMCache MP server is there "
    "(is it the HTTP port, or a gRPC server?), or one that has no room for another client; correct "
    "--rpc-url, or see the server's log"
)
_SILENT = (
    "something listens at --rpc-url, but it has not spoken ZMQ yet: the server is frozen (stopped, "
    "or without a CPU), or it is not an LMCache MP server; see its log, or correct --rpc-url"
)


async def reach(host: str, port: int, *, clock: Clock, wait_s: float, timeout_s: float) -> str:
    """Return the address of a host at which something listens.

    Raises FatalError if nothing does within `wait_s`, or if its name does not resolve.
    """
    deadline_ns = clock.now_ns() + int(wait_s * NS_PER_S)
    while True:
        try:
            return await _reach_once(host, port, timeout_s)
        except _UnreachableError as error:
            if clock.now_ns() >= deadline_ns:
                raise FatalError(
                    f"cannot reach the server at tcp://{in_url(host)}:{port}{error}; start it, "
                    "correct --rpc-url, or give it time with --wait-ready SECS"
                ) from error
        await clock.sleep_ns(_RETRY_NS)


class _UnreachableError(Exception):
    """Nothing listens there now; the text says why, behind the address."""


async def _reach_once(host: str, port: int, timeout_s: float) -> str:
    try:
        addresses = await within(addresses_of(host), timeout_s)
    except OutOfTimeError as error:
        late = unresolved(host, f"no answer to that within {timeout_s:g} s{error.ours}")
        raise _UnreachableError(f": {late}") from error
    except UnresolvedError as error:
        raise _UnreachableError(f": {error}") from error
    reasons: list[str] = []
    for address in addresses:
        try:
            await within(_connect(address, port), timeout_s / len(addresses))
        except OutOfTimeError as error:
            reasons.append(f"no answer{error.ours}")
        except OSError as error:
            reasons.append(os_reason(error))
        else:
            return address
    raise _UnreachableError(f" ({', '.join(dict.fromkeys(reasons))})")


async def _connect(address: str, port: int) -> None:
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


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


async def choose_dialect(
    target: Target,
    version: str,
    open_rpc: Callable[[Dialect], Connection],
    note: Callable[[str], None],
) -> Dialect:
    """Return how to speak: as the user says, as the version says, or as the server answers.

    `version` is the server's own text, or "".  Raises FatalError or UsageError if that cannot be
    told.
    """
    if target.server_release:
        return said_dialect(target.server_release, version)
    dialect = dialect_of_version(version)
    if dialect is not None:
        return dialect
    timeout_s = min(target.timeout_s, _PROBE_ANSWER_WITHIN_S)
    note(
        f"{'This release is not known' if version else 'No release is known'}: asking the "
        f"server harmless questions, {timeout_s:g} s each ..."
    )
    group = await ask_group(open_rpc, timeout_ns=int(timeout_s * NS_PER_S))
    note(f"It answers as release {group.releases}")
    return dialect_of_group(group, version)


async def ask_group(open_rpc: Callable[[Dialect], Connection], *, timeout_ns: int) -> Group:
    """Find out by harmless questions which releases the server can be, one at a time.

    Each waits up to `timeout_ns`; a current server leaves six of eight unanswered.  Raises
    FatalError for a peer that is not an LMCache MP server, or one of no known release.
    """
    questions = probe()
    question = next(questions)
    while True:
        try:
            question = questions.send(await _answer_to(question, open_rpc, timeout_ns))
        except StopIteration as end:
            group: Group = end.value
            return group
        except RemoteProtocolError as error:
            raise FatalError(f"the server's release is unknown: {error}; {_REMEDY}") from error


async def _answer_to(
    question: Question, open_rpc: Callable[[Dialect], Connection], timeout_ns: int
) -> Any:
    """Return the answer, VOID or NO_ANSWER."""
    # A connection of its own: each question is a dialect of one operation.
    rpc = open_rpc(question.dialect)
    try:
        reply = await rpc.call(Op.NOOP, *question.args, timeout_ns=timeout_ns)
    except NoAnswerError:
        if not rpc.standing.greeted:
            raise FatalError(_unspoken(rpc)) from None
        return NO_ANSWER
    except BadAnswerError as error:
        raise FatalError(
            f"the server's release is unknown: a malformed answer ({error.reason}); {_REMEDY}"
        ) from error
    except CallFailedError as error:
        reason = error.reason if rpc.standing.greeted else _NO_ZMQ
        raise FatalError(reason) from error
    finally:
        await rpc.close()
    return reply.result


def _unspoken(rpc: Connection) -> str:
    """Say what it is that has not spoken ZMQ."""
    return _NO_ZMQ if rpc.standing.spoke_otherwise else _SILENT


async def confirm_release(
    rpc: Connection,
    target: Target,
    version: str,
    open_rpc: Callable[[Dialect], Connection],
    note: Callable[[str], None],
) -> None:
    """See that the peer has the operation numbers of the release that was named, or FatalError.

    One question, which a right server answers at once and no other is harmed by.  Where the answer
    is not that of the release, the harmless questions of the probe tell which one it is.
    """
    question = confirmation(rpc.dialect)
    try:
        reply = await rpc.call(question.op, *question.args)
    except (NoAnswerError, BadAnswerError) as error:
        if not rpc.standing.greeted:
            raise FatalError(_unspoken(rpc)) from error
        answer = str(error)
    except CallFailedError as error:
        raise FatalError(error.reason if rpc.standing.greeted else _NO_ZMQ) from error
    else:
        if question.fits(reply.result):
            return
        answer = f"{question.op.name}: answered {one_line(ascii(reply.result), 40)}"
    note(f"It does not answer as release {rpc.dialect.name}: asking harmless questions ...")
    timeout_s = min(target.timeout_s, _PROBE_ANSWER_WITHIN_S)
    try:
        group = await ask_group(open_rpc, timeout_ns=int(timeout_s * NS_PER_S))
    except FatalError as error:
        raise FatalError(
            f"{target.rpc_url} is reachable, but {one_line(answer, 160)}; it is not an LMCache MP "
            f"server of release {rpc.dialect.name}, or its RPC thread is dead"
        ) from error
    raise FatalError(_two_releases(rpc.dialect, target, version, group, answer))


def _two_releases(dialect: Dialect, target: Target, version: str, group: Group, answer: str) -> str:
    """Say which releases do not fit, in one line."""
    rpc = f"{target.rpc_url} answers as release {group.releases}"
    if group.dialect is not None and _numbering(group.dialect) == _numbering(dialect):
        return f"{rpc}, but {one_line(answer, 160)}; is it overloaded?"
    if target.server_release:
        return (
            f"--server-release {target.server_release}, but {rpc}, whose operations have other "
            "numbers; leave the option out, or correct --rpc-url"
        )
    return (
        f"--rpc-url and --url are two different releases: {target.http_url} says version "
        f"{one_line(version, 60)}, {rpc}; correct one of them (nothing was sent that could "
        "change it)"
    )


def said_dialect(said: str, version: str = "") -> Dialect:
    """Return the dialect of the release that the user said; UsageError if there is none.

    UsageError too if the server's version text names a release whose operations have other
    numbers: GET_CHUNK_SIZE of 0.4.6 is CLEAR in 0.4.7, and that of 0.4.7 is CLEAR in 0.5.0.
    """
    try:
        dialect = dialect_of(said)
    except LocalProtocolError as error:
        raise UsageError(f"--server-release: {error}") from error
    named = dialect_of_version(version)
    if named is not None and _numbering(named) != _numbering(dialect):
        raise UsageError(
            f"--server-release {said}, but the server says it is version "
            f"{one_line(version, 60)}, whose operations have other numbers: a request could clear "
            "its cache or end it; leave the option out, or correct --url"
        )
    return dialect


def _numbering(dialect: Dialect) -> tuple[int, int]:
    """Return the numbers that have moved with all others, as operations were added."""
    return dialect.ops[Op.GET_CHUNK_SIZE].id, dialect.ops[Op.NOOP].id


def dialect_of_version(version: str) -> Dialect | None:
    """Return the dialect of the release that a version text names, or None if it is not known."""
    try:
        return dialect_of(release_of(version))
    except LocalProtocolError:
        return None


def dialect_of_group(group: Group, version: str = "") -> Dialect:
    """Return how a group of releases is spoken to; FatalError if it cannot be.

    `version`, a text that names no known release, may be that of a newer one: such a server must
    answer as the newest that is known.
    """
    if group.dialect is None and group.choices:
        raise FatalError(
            f"the server answers as releases {group.releases}, whose LOOKUPs differ; say "
            f"which it is with --server-release {'|'.join(group.choices)}"
        )
    if group.dialect is None:
        spoken = known_releases()
        raise FatalError(
            f"the server answers as releases {group.releases}, which bench-server does not speak; "
            f"use one of {spoken[-1]} to {spoken[0]}"
        )
    newest = DIALECTS[0]
    if _is_newer(release_of(version), newest) and group.dialect is not newest:
        raise FatalError(
            f"the server says it is version {one_line(version, 60)}, newer than all that "
            f"bench-server knows, but answers as {group.releases}; {_REMEDY}"
        )
    return group.dialect


def _is_newer(release: str, than: Dialect) -> bool:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", text)[:3])

    return bool(release) and numbers(release) >= numbers(than.name)
