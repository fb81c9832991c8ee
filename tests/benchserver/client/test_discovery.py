"""Which server it is: reaching it, reading its release, choosing the dialect."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from benchserver.client import discovery
from benchserver.client.connection import Connection, NoAnswerError, Standing
from benchserver.client.discovery import (
    ask_group,
    choose_dialect,
    confirm_release,
    dialect_of_group,
    dialect_of_version,
    reach,
    read_version,
    said_dialect,
)
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.zmq import ZmqConnector
from benchserver.clock import NS_PER_MS, NS_PER_S, RealClock, VirtualClock
from benchserver.config.run import RunConfig
from benchserver.config.target import Target
from benchserver.errors import FatalError, UsageError
from benchserver.refserver.config import spoken_releases
from protocol.dialect import Dialect
from protocol.dialects import V055, V056, V057, dialect_of
from protocol.errors import RemoteProtocolError
from protocol.messages import Reply
from protocol.ops import Op
from protocol.probe import Group
from tests.httpstage import serving
from tests.oddpeers import ODD_PEERS, closed

pytestmark = pytest.mark.usefixtures("leak_free")

HERE = "127.0.0.1"


@pytest.mark.parametrize("version", ["0.5.6", "0.5.6-g3e11e108", "v0.5.6+local"])
def test_known_releases(version: str) -> None:
    assert dialect_of_version(version) is V056


@pytest.mark.parametrize("version", ["", "0.5.8", "0.5.6rc1", "0.5", "dev\n\x1b[31m", "10.5.6"])
def test_unknown_servers(version: str) -> None:
    assert dialect_of_version(version) is None


def test_a_release_that_is_said() -> None:
    assert said_dialect("0.5.6") is V056


@pytest.mark.parametrize("said", ["0.5.8", "v0.5.6", "latest", "٠.٥.٦"])
def test_unknown_releases_that_are_said(said: str) -> None:
    with pytest.raises(UsageError, match=r"^--server-release: server release .* expected one of"):
        said_dialect(said)


@pytest.mark.parametrize(
    ("said", "version"), [("0.5.7rc2", "0.5.6-12-gabc"), ("0.5.0", "0.5.2"), ("0.4.7", "nonsense")]
)
def test_what_is_said_wins_over_the_version(said: str, version: str) -> None:
    assert said_dialect(said, version) is dialect_of(said)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("0.4.6", "0.4.7"),
        ("0.4.7", "0.5.0-g12"),
        ("0.4.2", "0.4.3"),
        ("0.5.3", "0.4.7"),
        ("0.4.1", "0.4.2"),
    ],
)
def test_what_is_said_cannot_clear_a_cache(said: str, version: str) -> None:
    with pytest.raises(UsageError) as caught:
        said_dialect(said, version)
    assert str(caught.value) == (
        f"--server-release {said}, but the server says it is version {version}, whose operations "
        "have other numbers: a request could clear its cache or end it; leave the option out, or "
        "correct --url"
    )


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "version", "dialect"),
    [("0.5.5", "", V055), ("0.5.5", "0.5.6", V055), ("", "0.5.6-g3e11e108", V056)],
)
async def test_a_server_that_need_not_be_asked(
    make_config: Callable[..., RunConfig], said: str, version: str, dialect: Dialect
) -> None:
    def ask(_: Dialect) -> Connection:
        raise AssertionError("the server was asked")

    target, notes = make_config(server_release=said).target, list[str]()
    assert await choose_dialect(target, version, ask, notes.append) is dialect
    assert notes == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("version", "start"), [("", "No release is"), ("x", "This release is not")]
)
async def test_a_server_that_must_be_asked(
    make_config: Callable[..., RunConfig],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    start: str,
) -> None:
    async def answer(open_rpc: object, *, timeout_ns: int) -> Group:
        assert timeout_ns == 3 * NS_PER_S
        return Group(releases="0.5.5", dialect=V055)

    monkeypatch.setattr(discovery, "ask_group", answer)
    notes = list[str]()
    ask = cast(Callable[[Dialect], Connection], None)
    assert await choose_dialect(make_config().target, version, ask, notes.append) is V055
    assert notes == [
        f"{start} known: asking the server harmless questions, 3 s each ...",
        "It answers as release 0.5.5",
    ]


@pytest.mark.parametrize("version", ["", "nonsense", "0.5.5.post1", "0.5.6.dev3"])
def test_a_group_is_spoken_to_as_it_answers(version: str) -> None:
    assert dialect_of_group(Group(releases="0.5.5", dialect=V055), version) is V055


@pytest.mark.parametrize("version", ["0.5.7", "0.5.8-g1234", "0.6.0", "1.0.0"])
def test_a_newer_server_must_answer_as_the_newest(version: str) -> None:
    assert dialect_of_group(Group(releases="0.5.7", dialect=V057), version) is V057
    with pytest.raises(FatalError) as caught:
        dialect_of_group(Group(releases="0.5.6", dialect=V056), version)
    assert str(caught.value) == (
        f"the server says it is version {version}, newer than all that bench-server knows, but "
        "answers as 0.5.6; say it with --server-release"
    )


def test_a_group_that_cannot_be_spoken_to() -> None:
    with pytest.raises(FatalError) as caught:
        dialect_of_group(Group(releases="0.4.3 to 0.4.4", choices=("0.4.3", "0.4.4")))
    assert str(caught.value) == (
        "the server answers as releases 0.4.3 to 0.4.4, whose LOOKUPs differ; say which it is "
        "with --server-release 0.4.3|0.4.4"
    )
    with pytest.raises(FatalError) as caught:
        dialect_of_group(Group(releases="0.3.10 to 0.3.12"))
    assert str(caught.value) == (
        "the server answers as releases 0.3.10 to 0.3.12, which bench-server does not speak; use "
        "one of 0.4.1 to 0.5.7rc2"
    )


@contextlib.contextmanager
def names(monkeypatch: pytest.MonkeyPatch, **addresses: str) -> Iterator[list[str]]:
    """Let these names alone resolve, to one address each; yields what was asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        family = socket.AF_INET6 if ":" in addresses[host] else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (addresses[host], 0))]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield asked


@pytest.mark.asyncio
async def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with names(monkeypatch), pytest.raises(FatalError) as caught:
        await reach("host.example", 1, clock=VirtualClock(), wait_s=0, timeout_s=5)
    assert str(caught.value) == (
        "cannot reach the server at tcp://host.example:1: the name host.example does not resolve "
        "(Name or service not known); start it, correct --rpc-url, or give it time with "
        "--wait-ready SECS"
    )


@pytest.mark.asyncio
async def test_a_name_is_waited_for_as_a_port_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    with names(monkeypatch) as asked, pytest.raises(FatalError, match="does not resolve"):
        await reach("host.example", 1, clock=clock, wait_s=1.0, timeout_s=5)
    assert clock.now_ns() == NS_PER_S
    assert asked == ["host.example"] * 5


@pytest.mark.asyncio
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_name_of_one_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address}")
        listener.listen()
        port = listener.getsockname()[1]
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
            return real(address if host == "host" else host, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        found = await reach("host", port, clock=VirtualClock(), wait_s=0, timeout_s=5)
    assert found == address


@pytest.mark.asyncio
async def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(20) and [])
    told = list[str]()

    async def main() -> None:
        try:
            await reach("host.example", 1, clock=RealClock(), wait_s=0, timeout_s=0.1)
        except FatalError as error:
            told.append(str(error))
        ended.set()  # the loop waits for its threads, as the bench does not

    await asyncio.wait_for(main(), 10)
    assert "the name host.example does not resolve (no answer to that within 0.1 s)" in told[0]


async def wait_for(port: int, clock: VirtualClock, wait_s: float) -> None:
    assert await reach(HERE, port, clock=clock, wait_s=wait_s, timeout_s=5) == HERE


@pytest.mark.asyncio
@pytest.mark.parametrize(("wait_s", "waited_ns"), [(0.0, 0), (1.0, NS_PER_S), (0.9, NS_PER_S)])
async def test_nobody_listens(wait_s: float, waited_ns: int) -> None:
    clock = VirtualClock()
    with closed() as port, pytest.raises(FatalError) as caught:
        await wait_for(port, clock, wait_s)
    text = str(caught.value)
    assert text.startswith(f"cannot reach the server at tcp://127.0.0.1:{port} (")
    assert text.endswith("start it, correct --rpc-url, or give it time with --wait-ready SECS")
    assert text.isprintable()
    assert clock.now_ns() == waited_ns


@pytest.mark.asyncio
async def test_somebody_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        clock = VirtualClock()
        await wait_for(listener.getsockname()[1], clock, 0.0)
        assert clock.now_ns() == 0


@pytest.mark.asyncio
async def test_a_server_that_starts_meanwhile_is_reached() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # nobody else gets it, and nobody is heard there

        class StartsServer(VirtualClock):
            async def sleep_ns(self, duration_ns: int) -> None:
                await super().sleep_ns(duration_ns)
                if self.now_ns() == NS_PER_S:
                    listener.listen()

        clock = StartsServer()
        await wait_for(listener.getsockname()[1], clock, 60.0)
        assert clock.now_ns() == NS_PER_S


class ScriptedHttp:
    """Raises errors in turn, then says a version."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def version(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "0.5.6"


async def read(http: ScriptedHttp, clock: VirtualClock, wait_s: float) -> str:
    return await read_version(cast(HttpApi, http), clock=clock, wait_s=wait_s)


@pytest.mark.asyncio
async def test_a_version_that_comes_late() -> None:
    clock = VirtualClock()
    http = ScriptedHttp(HttpFailedError("starting"), RemoteProtocolError("odd"))
    assert await read(http, clock, 10.0) == "0.5.6"
    assert clock.now_ns() == 500 * NS_PER_MS


@pytest.mark.asyncio
@pytest.mark.parametrize(("wait_s", "waited_ns"), [(0.0, 0), (0.3, 500 * NS_PER_MS)])
async def test_a_version_that_does_not_come(wait_s: float, waited_ns: int) -> None:
    clock = VirtualClock()
    http = ScriptedHttp(*(HttpFailedError(f"down {n}") for n in range(100)))
    with pytest.raises(HttpFailedError, match="down"):
        await read(http, clock, wait_s)
    assert clock.now_ns() == waited_ns


# Which releases a server can be, by its answers


class UntilRefused:
    """Takes a question for unanswered when the server says that it refuses it, not by a clock."""

    def __init__(self, connection: Connection, lines: Sequence[str]) -> None:
        self._connection = connection
        self._lines = lines
        self.dialect = connection.dialect
        self.close = connection.close

    @property
    def standing(self) -> Standing:
        return self._connection.standing

    async def call(self, op: Op, *args: Any, timeout_ns: int | None = None) -> Reply:
        said = len(self._lines)
        call = asyncio.ensure_future(self._connection.call(op, *args, timeout_ns=timeout_ns))
        while not call.done():
            if len(self._lines) > said and self.standing.greeted:
                call.cancel()
                raise NoAnswerError(op, self._lines[-1])
            await asyncio.sleep(0.001)
        return await call


def connector_to(port: int, timeout_s: float = 30) -> ZmqConnector:
    url = f"tcp://127.0.0.1:{port}"
    return ZmqConnector(url, clock=RealClock(), timeout_ns=int(timeout_s * NS_PER_S))


async def group_at(port: int, timeout_ns: int, lines: Sequence[str] | None = None) -> Group:
    """Ask whoever listens on a port; `lines`: what a server says of what it refuses."""
    connector = connector_to(port)

    def open_rpc(dialect: Dialect) -> Connection:
        connection = connector.open(dialect, lambda event: None)
        return connection if lines is None else UntilRefused(connection, lines)

    try:
        return await ask_group(open_rpc, timeout_ns=timeout_ns)
    finally:
        await connector.close()


GROUPS = {
    "0.5.0": "0.5.0 to 0.5.2",
    "0.5.1": "0.5.0 to 0.5.2",
    "0.5.2": "0.5.0 to 0.5.2",
    "0.5.3": "0.5.3 to 0.5.4",
    "0.5.4": "0.5.3 to 0.5.4",
    "0.5.7rc2": "0.5.7",
}


@pytest.mark.asyncio
async def test_servers_of_all_releases_are_told_apart() -> None:
    async with AsyncExitStack() as running:
        sites = [
            await running.enter_async_context(serving(release=release))
            for release in spoken_releases()
        ]
        groups = [await group_at(site.rpc_port, 20 * NS_PER_S, site.lines) for site in sites]
        for site in sites:
            refused = [line for line in site.lines if "refused" in line]
            assert len(refused) == len(site.lines) <= 7, site.lines
    for release, group in zip(spoken_releases(), groups, strict=True):
        assert group.releases == GROUPS.get(release, release)
        assert group.dialect is not None
        assert group.dialect.ops.keys() == dialect_of(release).ops.keys()
        assert group.dialect.key_fields == dialect_of(release).key_fields


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ODD_PEERS)
async def test_who_is_no_server_is_told_in_time(kind: str) -> None:
    peer, words = ODD_PEERS[kind]
    # Five questions at most; who answers, or hangs up, is not waited for.
    timeout_ns = NS_PER_S // 4 if kind in ("silent", "mute") else 30 * NS_PER_S
    with peer() as port, pytest.raises(FatalError) as caught:
        await asyncio.wait_for(group_at(port, timeout_ns), 20)
    assert str(caught.value).startswith(words)
    assert str(caught.value).isprintable()


@pytest.mark.asyncio
async def test_a_server_that_goes_while_it_is_asked() -> None:
    listener = await asyncio.start_server(greet_and_go, "127.0.0.1", 0)
    try:
        with pytest.raises(FatalError, match=r"^the connection to tcp://.* was lost while wait"):
            await group_at(listener.sockets[0].getsockname()[1], 5 * NS_PER_S)
    finally:
        listener.close()
        await listener.wait_closed()


# The peer at --rpc-url is of the release that --url or the user names


async def confirmed(port: int, target: Target, named: Dialect, version: str) -> list[str]:
    """Confirm a release at a port; return the notes."""
    connector, notes = connector_to(port, target.timeout_s), list[str]()

    def open_rpc(dialect: Dialect) -> Connection:
        return connector.open(dialect, lambda event: None)

    try:
        await confirm_release(open_rpc(named), target, version, open_rpc, notes.append)
    finally:
        await connector.close()
    return notes


@pytest.mark.asyncio
async def test_every_release_is_confirmed_at_once(make_config: Callable[..., RunConfig]) -> None:
    for release in spoken_releases():
        async with serving(release=release) as site:
            dialect = dialect_of(release)
            assert await confirmed(site.rpc_port, make_config().target, dialect, release) == []
            assert site.lines == []


@pytest.mark.asyncio
@pytest.mark.parametrize(("named", "there"), [("0.4.7", "0.5.0"), ("0.5.6", "0.4.7")])
async def test_two_different_releases(
    make_config: Callable[..., RunConfig], named: str, there: str
) -> None:
    async def main(target: Target) -> str:
        async with serving(release=there) as site:
            with pytest.raises(FatalError) as caught:
                await confirmed(site.rpc_port, target, dialect_of(named), f"{named}-gabc")
            assert all("refused" in line for line in site.lines)
        return str(caught.value)

    text = await main(make_config(timeout_s=0.5).target)
    answers = {"0.5.0": "0.5.0 to 0.5.2"}.get(there, there)
    assert text == (
        f"--rpc-url and --url are two different releases: http://localhost:8080 says version "
        f"{named}-gabc, tcp://localhost:5555 answers as release {answers}; correct one of them "
        "(nothing was sent that could change it)"
    )
    text = await main(make_config(timeout_s=0.5, server_release=named).target)
    assert text == (
        f"--server-release {named}, but tcp://localhost:5555 answers as release {answers}, whose "
        "operations have other numbers; leave the option out, or correct --rpc-url"
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ODD_PEERS)
async def test_who_is_no_server_confirms_nothing(
    make_config: Callable[..., RunConfig], kind: str
) -> None:
    peer, words = ODD_PEERS[kind]
    with peer() as port, pytest.raises(FatalError) as caught:
        await confirmed(port, make_config(timeout_s=0.2).target, V056, "0.5.6")
    text = str(caught.value)
    if "listens at --rpc-url" in words:
        assert text.startswith(words)
    else:
        assert text.startswith("tcp://localhost:5555 is reachable, but WAIT_PREFETCH_STATUS: ")
        assert text.endswith(
            "it is not an LMCache MP server of release 0.5.6, or its RPC thread is dead"
        )


GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(16) + b"\0" + bytes(31)
READY = b"\5READY\x0bSocket-Type\0\0\0\6ROUTER"
FIRST_QUESTION = b"\0\1\x08"


async def greet_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak ZMTP 3.0 up to the first message, then hang up."""
    writer.write(GREETING)
    await reader.readexactly(len(GREETING))
    writer.write(bytes([4, len(READY)]) + READY)
    heard = b""
    while not heard.endswith(FIRST_QUESTION):
        heard += await reader.read(1)
    writer.close()
