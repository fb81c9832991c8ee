"""Records sessions of a release's own client with its own server, for tests/golden.

One session for each way that the release's `lmcache bench server` moves KV data on CPU, each with
a fresh server behind the recording proxy of tests/mitm.  `scripts/record_golden` is the command
line.  What the client said is on disk only while it runs, and is quoted when something fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from protocol.codec import decode_op
from protocol.dialect import Dialect
from protocol.dialects import dialect_of
from protocol.errors import LocalProtocolError
from protocol.ops import Op
from tests.mitm.recorder import Recorded, Recorder
from tests.real.releases import ENGINE_DRIVEN, LMCACHE_DRIVEN, Release, release_named
from tests.real.serverprocess import (
    HOST,
    ServerFailedError,
    ServerProcess,
    running_server,
    stop,
)

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
INDEX = "INDEX.json"
_PROGRAM = "record_golden"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

SPEC = "(2,64,16,2,8):float16:2"
INLINE_SPEC = "(2,64,16,1,4):float16:1"
"""Inline, the KV data itself is in the file, once for STORE and once for RETRIEVE."""

_SEQUENCES = ("--start", "1", "--end", "2")
_L1 = ("--l1-size-gb", "0.0625")
"""64 MiB: a shared pool has this size in /dev/shm."""

_CLIENT_WITHIN_S = 120.0
_REPLIES_WITHIN_S = 2.0
_POLL_S = 0.05
_TAIL_CHARS = 2000
_INLINE_WORDS = {"torch stream": "pickle"}
"""What file names call a form of inline data, where it is not the form's own name."""

_READS = {LMCACHE_DRIVEN: Op.RETRIEVE, ENGINE_DRIVEN: Op.PREPARE_RETRIEVE}
"""What a client sends only if its server has what it stored."""


class RecordingFailedError(Exception):
    """There is no session worth keeping; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One way to run the client, and the file that holds what it said."""

    name: str
    mode: str
    word: str
    pool: str
    spec: str

    def client_command(self, lmcache: Path, rpc_url: str, http_url: str) -> list[str]:
        """Return the command line of the release's own client."""
        return [
            str(lmcache), "bench", "server", "--mode", "cpu", "--transfer-mode", self.word,
            "--rpc-url", rpc_url, "--url", http_url,
            "--kvcache-shape-spec", self.spec, *_SEQUENCES,
        ]  # fmt: skip


def sessions_of(release: Release, dialect: Dialect) -> list[Session]:
    """Return the sessions of a release; none if its client has no CPU mode."""
    return list(_sessions(release, dialect))


def _sessions(release: Release, dialect: Dialect) -> Iterator[Session]:
    start = f"v{release.name.replace('.', '')}"
    for mode, word in release.bench_words.items():
        name = f"{start}_{word}_single_group"
        if mode == LMCACHE_DRIVEN:
            yield Session(name=name, mode=mode, word=word, pool="", spec=SPEC)
            continue
        inline = _INLINE_WORDS.get(dialect.inline.name, dialect.inline.name)
        pool, pooled = f"golden{os.getpid()}", f"{start}_{word}_shm_single_group"
        yield Session(name=pooled, mode=mode, word=word, pool=pool, spec=SPEC)
        if release.bench_inline:
            name = f"{start}_{word}_{inline}_single_group"
            yield Session(name=name, mode=mode, word=word, pool="", spec=INLINE_SPEC)


def record(asked: Asked, session: Session, stopping: Stopping) -> list[Recorded]:
    """Run one session with a server of its own.

    Raises RecordingFailedError, or ServerFailedError if the server does not run.
    """
    release, python = asked.release, asked.python
    options = (*release.mode_options(release.widest_on_cpu, session.pool), *_L1)
    with tempfile.TemporaryDirectory(prefix="record_golden_") as folder:
        logs = Path(folder)
        with running_server(str(python), options, log=logs / "server.log") as server:
            log = logs / "client.log"
            messages = stopping.run(_run_client(asked.dialect, session, python, server, log))
    sent = [message.op for message in messages if message.direction == "request"]
    read = _READS[session.mode].value
    if read not in sent:
        raise RecordingFailedError(
            f"the client sent no {read}: its server did not have what it stored. "
            f"It sent {', '.join(sent) or 'nothing'}"
        )
    return messages


async def _run_client(
    dialect: Dialect, session: Session, python: Path, server: ServerProcess, log: Path
) -> list[Recorded]:
    recorder = Recorder(server.rpc_url, lambda frame: decode_op(dialect, frame).value)
    rpc_url, lmcache = f"tcp://{HOST}:{recorder.port}", python.with_name("lmcache")
    try:
        with _running(session.client_command(lmcache, rpc_url, server.http_url), log) as client:
            await _await_client(client, recorder, log)
        await recorder.settle(_REPLIES_WITHIN_S)
    finally:
        await recorder.close()
    if recorder.failure:
        raise RecordingFailedError(f"the proxy stopped: {recorder.failure}")
    return recorder.messages


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LMCACHE_TRACK_USAGE": "false"},
            start_new_session=True,  # a Ctrl-C is ours to handle
        )
    try:
        yield process
    finally:
        stop(process)


async def _await_client(client: subprocess.Popen[bytes], recorder: Recorder, log: Path) -> None:
    deadline = time.monotonic() + _CLIENT_WITHIN_S
    while client.poll() is None and not recorder.failure:
        if time.monotonic() > deadline:
            raise RecordingFailedError(
                f"the client did not end within {_CLIENT_WITHIN_S:g} s{_tail(log)}"
            )
        await asyncio.sleep(_POLL_S)
    if client.returncode:
        raise RecordingFailedError(
            f"the client ended with code {client.returncode}, expected 0{_tail(log)}"
        )


def _tail(log: Path) -> str:
    return f": {log.read_text(errors='replace')[-_TAIL_CHARS:]}"


def index_entry(
    release: Release, session: Session, messages: Sequence[Recorded], size_bytes: int
) -> dict[str, Any]:
    """Return what INDEX.json says of a recording."""
    server = ("server", *release.mode_options(release.widest_on_cpu, session.pool), *_L1)
    client = (session.word, f"'{session.spec}'", *_SEQUENCES)
    return {
        "release": release.name,
        "server": " ".join(option or "''" for option in server),
        "client": " ".join(client),
        "messages": len(messages),
        "request_ops": [message.op for message in messages if message.direction == "request"],
        "bytes": size_bytes,
    }


def write(release: Release, recorded: Mapping[Session, Sequence[Recorded]], folder: Path) -> None:
    """Write the files and their lines in the index, each at once or not at all."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    for session, messages in recorded.items():
        text = json.dumps([message.as_json() for message in messages], indent=0)
        name = f"{session.name}.json"
        _replace(folder / name, text)
        index["files"][name] = index_entry(release, session, messages, len(text))
    index["files"] = dict(sorted(index["files"].items()))
    _replace(folder / INDEX, json.dumps(index, indent=1))


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    release: Release
    dialect: Dialect
    python: Path
    folder: Path


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{_PROGRAM}: error: {message}\n")


def parse(arguments: Sequence[str], environments: Path) -> Asked:
    """Read the command line; wrong usage, or what is not installed, exits 2."""
    parser = _Parser(
        prog=f"scripts/{_PROGRAM}",
        description="Records sessions of a release's own client and server.",
        allow_abbrev=False,
    )
    parser.add_argument("release", metavar="RELEASE", help="such as 0.5.5; see tests/real/releases")
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=GOLDEN, help="which has an INDEX.json"
    )
    given = parser.parse_args(arguments)
    try:
        release, dialect = release_named(given.release), dialect_of(given.release)
    except (LookupError, LocalProtocolError) as error:
        parser.error(str(error.args[0]))
    if not release.bench_words:
        parser.error(f"the bench of lmcache {release.name} needs a GPU: there is nothing to record")
    python = environments / release.name / "bin" / "python"
    if not python.with_name("lmcache").exists():
        parser.error(
            f"no lmcache {release.name} in {python.parent.parent}, install it: "
            f"scripts/real_server {release.name}"
        )
    if not (given.into / INDEX).is_file():
        parser.error(f"{given.into} has no {INDEX}, expected a folder like tests/golden")
    return Asked(release=release, dialect=dialect, python=python, folder=given.into)


def main(arguments: Sequence[str], environments: Path = ROOT / ".real") -> int:
    """Record all sessions of a release, then write them; return the exit code."""
    asked = parse(arguments, environments)
    stopping = Stopping()
    for number in _SIGNALS:
        signal.signal(number, stopping.asked)
    try:
        recorded = _record_all(asked, stopping)
        _ignore_signals()  # from here on it is a matter of milliseconds
        write(asked.release, recorded, asked.folder)
    except KeyboardInterrupt:
        print(f"{_PROGRAM}: stopped; nothing was written", file=sys.stderr)
        return 130
    except (RecordingFailedError, OSError) as error:
        print(f"{_PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    return 0


def _record_all(asked: Asked, stopping: Stopping) -> dict[Session, list[Recorded]]:
    recorded: dict[Session, list[Recorded]] = {}
    for session in sessions_of(asked.release, asked.dialect):
        try:
            recorded[session] = record(asked, session, stopping)
        except (RecordingFailedError, ServerFailedError, OSError) as error:
            raise RecordingFailedError(f"{session.name}: {error}") from error
        print(f"{session.name}: {len(recorded[session])} messages", flush=True)
    return recorded


class Stopping:
    """What a signal does: it raises KeyboardInterrupt, or cancels the session that is recorded.

    Raised anywhere inside an event loop, it could end in a callback and be lost there.
    """

    def __init__(self) -> None:
        self._cancel: Callable[[], object] | None = None

    def asked(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        _ignore_signals()  # the stop has a deadline; nothing may cut it short
        if self._cancel is None:
            raise KeyboardInterrupt
        self._cancel()

    def run(self, session: Coroutine[Any, Any, list[Recorded]]) -> list[Recorded]:
        """Run a session in an event loop of its own; raises KeyboardInterrupt if it was stopped."""

        async def cancellable() -> list[Recorded]:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(session)
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await task
            finally:
                self._cancel = None

        try:
            return asyncio.run(cancellable())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
