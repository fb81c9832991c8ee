"""The process in which a `mooncake://` tier runs the Mooncake library.

    python -m benchserver.refserver.tiers.mooncake.client CHANNEL MEMORY

CHANNEL is the descriptor of a SOCK_SEQPACKET socket, MEMORY that of memory shared with the tier's
process.  The first packet holds the settings, and its answer says whether the store is open; each
later one is a call, {"id", "op", ...}, answered by {"id", "result"} when it ends.  Calls that
concern one object run one after the other.  At the end of the channel the store is closed and the
process ends.

The library (0.3.13.post1) is why this is a process: it keeps 11 of its 31 threads after `close`,
any call after `close` is a segmentation fault, `setup` holds Python's lock for 90 s if the master
is not there, and a call can take 30 s if the master has stopped.  All of that ends with a process.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import queue
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urlsplit

from benchserver.errors import os_reason
from benchserver.refserver.tiers.mooncake.codes import ABSENT, INVALID, NO_ROOM

MAX_PACKET_BYTES = 1 << 17
"""Below the 208 KiB that a Unix socket takes by default; a thousand names need half of it."""

THREADS = 4
"""They wait for the network more than they work."""

LIBRARY_BUFFER_BYTES = 1
"""What `setup` allocates for `get` and `put`, which are not used here; 0 and 1 both work."""

NO_ROOM_TRIES = 6
NO_ROOM_PAUSE_S = 0.02
"""A full store evicts in the background, in about 10 ms."""

END_S = 3.0
"""How long the calls under way may take at the end."""

REACH_S = 3.0
"""How long a connection to the master, and one to the metadata server, may take."""

PACKAGE, LIBRARY, PEER, SETUP = "package", "library", "peer", "setup"
"""What was missing when the store could not be opened."""

LIMITS = {"MC_RPC_TIMEOUT_MS": "5000", "MC_RPC_CONNECT_TIMEOUT_MS": "2000"}
"""The library's own, 30 s by default; others in the environment win."""

Work = Callable[[], None]


class OpenError(Exception):
    """The store cannot be opened: what is missing, and why."""

    def __init__(self, missing: str, reason: str) -> None:
        super().__init__(reason)
        self.missing = missing


class Memory:
    """The memory that is shared with the tier."""

    def __init__(self, descriptor: int) -> None:
        self.nbytes = os.fstat(descriptor).st_size
        self._mapping = mmap.mmap(descriptor, self.nbytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))

    def at(self, offset: int, nbytes: int) -> int:
        """Return the address of a part of it."""
        if not 0 <= offset <= offset + nbytes <= self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset}, the memory has {self.nbytes}")
        return self.address + offset


class Lanes:
    """Threads, each with a queue of its own."""

    def __init__(self, count: int) -> None:
        self._queues = [queue.SimpleQueue[Work | None]() for _ in range(count)]
        # Daemons: nobody may wait for ever for a library that does not return.
        self._threads = [
            threading.Thread(target=_work, args=(tasks,), daemon=True) for tasks in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def put(self, name: str, work: Work) -> None:
        """Queue work on the lane of a name."""
        self._queues[zlib.crc32(name.encode()) % len(self._queues)].put(work)

    def end(self, timeout_s: float) -> bool:
        """Let the lanes end after what is queued; tell whether they did in time."""
        for tasks in self._queues:
            tasks.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _work(tasks: queue.SimpleQueue[Work | None]) -> None:
    while (work := tasks.get()) is not None:
        work()


def open_store(settings: dict[str, Any], memory: Memory) -> Any:
    """Return a store that is set up and knows the memory; raises OpenError."""
    for name, value in LIMITS.items():
        os.environ.setdefault(name, value)
    try:
        from mooncake.store import MooncakeDistributedStore
    except ModuleNotFoundError as error:
        raise OpenError(PACKAGE, str(error)) from error
    except ImportError as error:
        raise OpenError(LIBRARY, str(error)) from error
    hostname = reach("Mooncake's master", settings["master"])
    reach("Mooncake's metadata server", urlsplit(settings["metadata"]).netloc)
    store = MooncakeDistributedStore()
    code = store.setup(
        hostname,
        settings["metadata"],
        settings["segment_bytes"],
        LIBRARY_BUFFER_BYTES,
        settings["protocol"],
        "",
        settings["master"],
    )
    if code:
        raise OpenError(SETUP, f"setup gave {code}")
    code = store.register_buffer(memory.address, memory.nbytes)
    if code:
        raise OpenError(SETUP, f"register_buffer gave {code}")
    return store


def reach(what: str, place: str) -> str:
    """Return our address as HOST:PORT sees it; raises OpenError if nobody listens there."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACH_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise OpenError(PEER, f"{what} at {place}: {os_reason(error)}; is it running?") from error


def exist(store: Any, call: dict[str, Any]) -> list[int]:
    """Return 1, 0 or a code for each name."""
    return [int(code) for code in store.batch_is_exist(call["names"])]


def read(store: Any, call: dict[str, Any], address: int) -> int:
    """Return how large the object is, or a code; it is in memory if it is not too large."""
    size = int(store.get_into(call["name"], address, call["nbytes"]))
    if size != INVALID:
        return size
    # Too large, or something else is wrong: its size tells.
    actual = int(store.get_size(call["name"]))
    return actual if actual > call["nbytes"] or actual == ABSENT else INVALID


def write(store: Any, call: dict[str, Any], address: int) -> int:
    """Store an object in place of what the name had; return 0 or a code."""
    for _ in range(NO_ROOM_TRIES):
        code = int(store.upsert_from(call["name"], address, call["nbytes"]))
        if code != NO_ROOM:
            return code
        time.sleep(NO_ROOM_PAUSE_S)
    return NO_ROOM


class Server:
    """Answers the calls of one tier."""

    def __init__(self, channel: socket.socket, store: Any, memory: Memory) -> None:
        self._channel = channel
        self._store = store
        self._memory = memory
        self._objects = Lanes(THREADS)
        self._probes = Lanes(1)

    def run(self) -> None:
        """Serve until the channel ends."""
        while packet := self._channel.recv(MAX_PACKET_BYTES):
            self._take(json.loads(packet))

    def close(self) -> None:
        """Close the store, unless a call does not end: after `close` it would be a crash."""
        if self._objects.end(END_S) and self._probes.end(END_S):
            self._store.close()

    def _take(self, call: dict[str, Any]) -> None:
        if call["op"] == "exist":
            self._probes.put("", lambda: self._answer(call, exist(self._store, call)))
            return
        act = {"read": read, "write": write}[call["op"]]
        address = self._memory.at(call["offset"], call["nbytes"])
        self._objects.put(call["name"], lambda: self._answer(call, act(self._store, call, address)))

    def _answer(self, call: dict[str, Any], result: int | list[int]) -> None:
        try:
            self._channel.send(json.dumps({"id": call["id"], "result": result}).encode())
        except OSError:
            return  # the tier's process is gone, and this one will notice


def main() -> NoReturn:
    """Serve one tier."""
    # What a lane did not expect ends the process, and with it every call that waits.
    threading.excepthook = lambda _: os._exit(1)
    channel = socket.socket(fileno=int(sys.argv[1]))
    memory = Memory(int(sys.argv[2]))
    settings = json.loads(channel.recv(MAX_PACKET_BYTES))
    try:
        store = open_store(settings, memory)
    except OpenError as error:
        answer = {"missing": error.missing, "reason": str(error)}
        channel.send(json.dumps(answer).encode())
        os._exit(1)
    channel.send(json.dumps({"missing": ""}).encode())
    # The library goes on to log, a line for each call that fails; nobody would read it.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    os.dup2(silence, sys.stderr.fileno())
    server = Server(channel, store, memory)
    server.run()
    server.close()
    # At once: the library's threads outlive the store.
    os._exit(0)


if __name__ == "__main__":
    main()
