"""The tier's end of the process that runs the Mooncake library: starts it, calls it, ends it.

Starting blocks; all else but `end` belongs to the event loop.  When the process is gone, for
whatever reason, every call raises TierError, those that wait included: what its segment held went
with it, so that it is not started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from typing import Any

from benchserver.errors import FatalError, HarnessError, UsageError, one_line
from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.mooncake.client import (
    END_S,
    LIBRARY,
    MAX_PACKET_BYTES,
    PACKAGE,
    PEER,
)
from benchserver.refserver.tiers.mooncake.staging import Lease, Staging
from benchserver.refserver.tiers.tier import TierError

START_S = 15.0
"""Import, two connections of 3 s at most, and `setup`, which takes 30 ms or does not return."""

CLOSE_S = 2 * END_S + 2
REAP_S = 0.5
"""A process whose channel has ended is gone in less than a millisecond."""

MAX_CALLS = 64
"""Under way at once; more would not fit into the channel's buffer."""

_MODULE = "benchserver.refserver.tiers.mooncake.client"
_LOG_TAIL_BYTES = 1 << 14
_DEBIAN = "libibverbs1 librdmacm1 libnuma1 libcurl4"


@dataclass(slots=True, eq=False)
class _Call:
    """A call on its way; the process uses the lease until it answers."""

    future: asyncio.Future[Any]
    lease: Lease | None


class MooncakeProcess:
    """One such process.  Raises UsageError or FatalError if the store cannot be opened."""

    def __init__(self, config: MooncakeConfig, staging: Staging) -> None:
        self._ids = count()
        self._calls: dict[int, _Call] = {}
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: str | None = None
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = os.memfd_create("bench-server-mooncake-log", os.MFD_CLOEXEC)
        try:
            self._process = _spawn(theirs.fileno(), staging.descriptor, log)
            theirs.close()
            try:
                self._greet(config, log)
            except BaseException:
                self._process.kill()
                self._process.wait()
                raise
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
            os.close(log)
        self._channel.setblocking(False)

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process is there, as far as anybody has noticed."""
        return self._gone is None

    async def call(self, op: str, *, lease: Lease | None = None, **fields: Any) -> Any:
        """Return the result of a call; raises TierError if the process is gone.

        A cancelled call returns at once.  Its lease goes back when the process has answered.
        """
        async with self._turns:
            if self._gone is not None:
                raise TierError(self._gone)
            self._attach()
            if lease is not None:
                fields |= {"offset": lease.offset, "nbytes": lease.nbytes}
            number = next(self._ids)
            self._send({"id": number, "op": op, **fields})
            call = _Call(asyncio.get_running_loop().create_future(), lease)
            if lease is not None:
                lease.share()
            self._calls[number] = call
            return await call.future

    def hang_up(self) -> None:
        """Tell the process to end; no call may follow."""
        self._lose("the mooncake tier is closed")
        self._channel.close()

    def end(self) -> None:
        """Wait until the process has ended, and kill it if it does not; blocks."""
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _greet(self, config: MooncakeConfig, log: int) -> None:
        """Send the settings and wait until the store is open."""
        self._channel.settimeout(START_S)
        settings = {
            "master": config.master,
            "metadata": config.metadata,
            "protocol": config.protocol,
            "segment_bytes": config.segment_bytes,
        }
        try:
            self._channel.send(json.dumps(settings).encode())
            packet = self._channel.recv(MAX_PACKET_BYTES)
        except TimeoutError as error:
            raise FatalError(
                f"L2 tier mooncake://{config.master}: the store was not open after {START_S:g} s; "
                "does the master answer?"
            ) from error
        except OSError:
            packet = b""
        if not packet:
            code = self._process.wait()
            raise FatalError(
                f"L2 tier mooncake://{config.master}: Mooncake's client {_how(code)} while it "
                f"opened the store: {_last_error(log)}"
            )
        answer = json.loads(packet)
        if answer["missing"]:
            raise _open_error(config, answer["missing"], answer["reason"], log)

    def _attach(self) -> None:
        """Listen to the channel on the event loop, from the first call on."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._channel, self._on_readable)

    def _send(self, call: dict[str, Any]) -> None:
        try:
            self._channel.send(json.dumps(call).encode())
        except BlockingIOError as error:
            raise TierError("Mooncake's client takes no more calls") from error
        except OSError as error:
            raise TierError(self._lost()) from error

    def _on_readable(self) -> None:
        try:
            packet = self._channel.recv(MAX_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._lost()
            return
        answer = json.loads(packet)
        call = self._calls.pop(answer["id"])
        _release(call)
        if not call.future.done():
            call.future.set_result(answer["result"])

    def _lost(self) -> str:
        """Take note that the process is gone; return what every call says from now on."""
        try:
            how = _how(self._process.wait(REAP_S))
        except subprocess.TimeoutExpired:
            how = "does not answer"
        return self._lose(f"Mooncake's client {how}; restart the server")

    def _lose(self, reason: str) -> str:
        if self._gone is None:
            self._gone = reason
        if self._loop is not None:
            self._loop.remove_reader(self._channel)
            self._loop = None
        for call in self._calls.values():
            _release(call)
            if not call.future.done():
                call.future.set_exception(TierError(self._gone))
        self._calls.clear()
        return self._gone


def _release(call: _Call) -> None:
    """Give back what the process uses no more."""
    if call.lease is not None:
        call.lease.release()


def _spawn(channel: int, memory: int, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(channel), str(memory)],
        pass_fds=(channel, memory),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for the server, which still has objects to write
    )


def _open_error(config: MooncakeConfig, missing: str, reason: str, log: int) -> HarnessError:
    where = f"L2 tier mooncake://{config.master}"
    if missing == PACKAGE:
        return UsageError(
            f"{where}: Mooncake is not installed ({one_line(reason, 120)}); "
            "pip install 'bench-server[mooncake]'"
        )
    if missing == LIBRARY:
        return UsageError(
            f"{where}: Mooncake cannot be loaded ({one_line(reason, 160)}); it needs Debian's "
            f"{_DEBIAN}"
        )
    if missing == PEER:
        return FatalError(f"{where}: {one_line(reason, 200)}")
    return FatalError(f"{where}: {one_line(reason, 120)}: {_last_error(log)}")


def _last_error(log: int) -> str:
    """Return the last line that the library logged as an error, or its last line."""
    size = os.fstat(log).st_size
    start = max(0, size - _LOG_TAIL_BYTES)
    lines = os.pread(log, _LOG_TAIL_BYTES, start).decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("E")] or lines
    return one_line(errors[-1], 160) if errors else "it logged nothing"


def _how(code: int) -> str:
    """Return how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"
