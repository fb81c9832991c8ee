"""Memory that processes have in use: ours at its peak, a server's while a run lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchserver.environment.listener import local_port, pid_listening
from benchserver.environment.reading import kib_in, read_text

_PROC = Path("/proc")
_EVERY_S = 0.5
_SEEK_EVERY_S = 60.0
"""A process that is not found is looked for less and less often, down to this: it is a long way
through /proc."""

_FIND_WITHIN_S = 0.3
_END_WITHIN_S = 0.5
"""A last look, if the run was short; it has 3 seconds to end once it was asked to."""


def peak_bytes(process: str = "self", proc: Path = _PROC) -> int | None:
    """Return the most that a process has had in use since it began; None: not known."""
    return kib_in(read_text(proc / process / "status"), "VmHWM")


def used_bytes(process: str, proc: Path = _PROC) -> int | None:
    """Return what a process has in use now; shared memory that it maps is counted with it."""
    return kib_in(read_text(proc / process / "status"), "VmRSS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMemory:
    """A server's process, and the most memory that was seen in use; or why it was not seen."""

    pid: int = 0
    name: str = ""
    peak_bytes: int = 0
    unseen: str = ""


class MemoryWatch:
    """Looks at a server's memory now and then, in a thread of its own, while a run lasts."""

    def __init__(self, rpc_url: str, *, proc: Path = _PROC, every_s: float = _EVERY_S) -> None:
        """The server is one that `rpc_url` names, if that is on this host."""
        self._port = local_port(rpc_url) or 0
        self._proc = proc
        self._every_s = every_s
        self._over = threading.Event()
        self._seen = ServerMemory(unseen="the run was over before it was looked for")
        if not self._port:
            self._seen = ServerMemory(unseen="the server is not on this host's loopback address")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look while this lasts."""
        thread = threading.Thread(target=self._look, name="memory-watch", daemon=True)
        started = False
        if self._port:
            with contextlib.suppress(RuntimeError):  # no thread is left: then nobody looks
                thread.start()
                started = True
        try:
            yield
        finally:
            self._over.set()
            if started:
                thread.join(_END_WITHIN_S)

    @property
    def seen(self) -> ServerMemory:
        """Return what was seen until now."""
        return self._seen

    def _look(self) -> None:
        wait_s, over = self._every_s, False
        while not over:
            over = self._over.wait(wait_s)
            pid = self._seen.pid or pid_listening(self._port, _FIND_WITHIN_S, self._proc) or 0
            wait_s = self._every_s if pid else min(2 * wait_s, _SEEK_EVERY_S)
            self._see(pid)

    def _see(self, pid: int) -> None:
        now = used_bytes(str(pid), self._proc) if pid else None
        if now is not None and now > self._seen.peak_bytes:
            name = read_text(self._proc / str(pid) / "comm", 64).strip()
            self._seen = ServerMemory(pid=pid, name=name, peak_bytes=now)
        elif not self._seen.pid:
            unseen = f"no process of ours was seen to listen on port {self._port}"
            self._seen = ServerMemory(unseen=unseen)
