"""What our own process and a server on this host hold, looked at now and then, in a thread.

The server is whoever listens on its port.  A server that was restarted has another process: what
is counted of it begins anew, and that is said.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from benchserver.environment.listener import local_port, pid_listening
from benchserver.environment.processes import Holdings, holdings_of
from benchserver.environment.sharedmemory import bytes_of, mapped_names

_FIND_WITHIN_S = 0.3
_MOST_SEEK_LOOKS = 12
"""A process that is not found is looked for less and less often, down to every so many looks: it
is a long way through /proc."""

_MOST_NAMES = 4096
_OURS = "bench_server_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one look has shown.

    `server` None: it was not seen, for the reason `unseen`.  `shared_bytes` are the names in
    /dev/shm that the server has made.  `restarted` says that its process is another than before.
    """

    ours: Holdings | None
    server: Holdings | None
    unseen: str = ""
    shared_bytes: dict[str, int] = field(default_factory=dict)
    restarted: str = ""


class Processes:
    """Looks at both sides; one look at a time, in whatever thread."""

    def __init__(self, rpc_url: str) -> None:
        """The server is the one that `rpc_url` names, if that is on this host."""
        self._port = local_port(rpc_url) or 0
        self._server: Holdings | None = None
        self._names = set[str]()
        self._pause = 0
        self._skipped = 0

    def look(self) -> Seen:
        """Look at both."""
        ours = holdings_of(os.getpid(), with_children=False)
        if not self._port:
            unseen = "the server is not on this host's loopback address"
            return Seen(ours=ours, server=None, unseen=unseen)
        before, server = self._server, self._look_at_server()
        if server is None:
            unseen = f"no process that we may look at listens on port {self._port}"
            return Seen(ours=ours, server=None, unseen=unseen)
        self._server, restarted = server, ""
        if before is not None and (before.pid, before.began) != (server.pid, server.began):
            self._names.clear()
            restarted = f"the server's process {before.pid} is gone, now it is {server.pid}"
        return Seen(
            ours=ours, server=server, shared_bytes=self._shared(server.pid), restarted=restarted
        )

    def _look_at_server(self) -> Holdings | None:
        if self._server is not None:
            found = holdings_of(self._server.pid, with_children=True)
            if found is not None and found.began == self._server.began:
                return found
        if self._skipped < self._pause:
            self._skipped += 1
            return None
        pid = pid_listening(self._port, _FIND_WITHIN_S)
        self._pause, self._skipped = min(2 * self._pause + 1, _MOST_SEEK_LOOKS), 0
        if pid is None or pid == os.getpid():
            return None
        self._pause = 0
        return holdings_of(pid, with_children=True)

    def _shared(self, pid: int) -> dict[str, int]:
        """Return what the server has in /dev/shm: what it maps, and what it mapped and left."""
        mapped = [name for name in mapped_names(pid) if not name.startswith(_OURS)]
        self._names.update(mapped[: _MOST_NAMES - len(self._names)])
        found = bytes_of(self._names)
        self._names.intersection_update(found)
        return found
