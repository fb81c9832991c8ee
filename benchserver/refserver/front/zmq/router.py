"""The ROUTER socket: messages in, replies out, and what a client makes us hold.

A peer decides how much it sends, in how many frames, how fast, and whether it reads its replies.
So each turn of the event loop takes a bounded share of what has come, the frames of a message that
is not a request are thrown away, and nothing more is answered to a client that leaves megabytes of
replies unread.  Other clients are served in between: libzmq takes one message of each in turn.

libzmq itself holds 64 bytes for each frame until the whole message has come, and up to RCVHWM
messages of each client; no option bounds their bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq
from zmq.utils.garbage import gc as uncopied

from benchserver.errors import FatalError
from benchserver.refserver.front.zmq.admission import Admission, client_limit
from benchserver.refserver.journal import Journal
from protocol import codec

TURN_FRAMES = 2000
TURN_S = 0.002
"""What one turn of the event loop may take from the socket."""

KEPT_FRAMES = codec.MAX_REQUEST_FRAMES + 1
"""One more than any request has: enough to see that a message is not one."""

MAX_MESSAGE_BYTES = codec.MAX_FRAME_BYTES
SEND_HIGH_WATER = 1000
"""Small replies that wait for a client that does not read; more are dropped."""

TRACKED_BYTES = zmq.COPY_THRESHOLD
"""Replies from here on are not copied, and counted until they have left this process."""

MAX_UNREAD_BYTES = 16 << 20
"""Of one client, before its next request is looked at; one reply may be larger."""

MAX_UNREAD_IN_ALL = 256 << 20
"""Of all clients, before those that have left something unread are answered again."""

READ_WITHIN_S = 60.0
"""How long a client's requests wait for it to read its replies."""

_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.05
"""How often we look whether it has: rarely, if it does not."""

HANDSHAKE_MS = 10_000
"""How long a client may take to say that it speaks ZMQ."""

LINGER_MS = 200
"""How long the last replies may take to leave when the server stops."""

_LET_GO_S = 1.0
"""How long libzmq may take to let go of what was not sent, once it is told to."""

Received = Sequence[bytes | memoryview]
"""A message's frames, at most KEPT_FRAMES; large ones stay where they were received."""

Frames = tuple[bytes, ...]
Take = Callable[[bytes, Received], None]


class LostReplyError(Exception):
    """A reply could not be sent: its client is gone, or has left too many unread."""


class Router:
    """One bound ROUTER socket."""

    def __init__(self, journal: Journal) -> None:
        self._wake = asyncio.Event()
        self._frames: list[bytes | memoryview] = []
        """Those of a message that has not been read to its end, its sender first."""
        self._unread = _Unread()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._admission = Admission(self._socket, journal, client_limit())
        self._port = 0

    def bind(self, host: str, port: int) -> int:
        """Bind and return the port; 0 takes a free one."""
        address = f"tcp://{f'[{host}]' if ':' in host else host}"
        try:
            self._socket.setsockopt(zmq.IPV6, int(":" in host))
            self._socket.bind(f"{address}:{port or '*'}")
            bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        except zmq.ZMQError as error:
            raise FatalError(f"cannot listen on {address}:{port}: {error}") from error
        self._port = int(bound.rpartition(":")[2])
        return self._port

    def close(self) -> None:
        """Close the socket; waits at most LINGER_MS for replies to leave."""
        self._admission.close()
        self._socket.close()
        self._context.term()
        # What was sent without a copy has a thread and descriptors, of pyzmq, for all sockets here.
        if self._unread.is_over(_LET_GO_S) and not uncopied.refs:
            uncopied.stop()

    async def watch_clients(self) -> None:
        """Keep the number of connections below a limit, until cancelled."""
        await self._admission.run(self._port)

    async def receive(self, take: Take) -> None:
        """Hand every message to a function, with who sent it, until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.FD, self._wake.set)
        try:
            while True:
                self._wake.clear()
                if self._take_turn(take, loop.time() + TURN_S):
                    await asyncio.sleep(0)
                else:
                    await self._wake.wait()
        finally:
            loop.remove_reader(self._socket.FD)

    def _take_turn(self, take: Take, until_s: float) -> bool:
        """Take what has come, but no more than a turn's share; tell whether more may be there."""
        receive, time_s = self._socket.recv, asyncio.get_running_loop().time
        frames = self._frames
        for _ in range(TURN_FRAMES):
            try:
                frame = receive(zmq.NOBLOCK, False)
            except zmq.Again:
                return False
            if len(frames) <= KEPT_FRAMES:
                frames.append(_content(frame))
            if frame.more:
                continue
            sender, *received = frames
            frames.clear()
            take(bytes(sender), received)
            if time_s() > until_s:
                return True
        return True

    def send(self, client: bytes, frames: Frames) -> None:
        """Send a reply without waiting; raises LostReplyError."""
        nbytes = sum(map(len, frames))
        message = (client, *frames)
        try:
            if nbytes < TRACKED_BYTES:
                self._socket.send_multipart(message, zmq.NOBLOCK)
            else:
                sent = self._socket.send_multipart(message, zmq.NOBLOCK, copy=False, track=True)
                self._unread.add(client, nbytes, sent)
        except zmq.ZMQError as error:
            raise LostReplyError(str(error)) from error
        finally:
            # Sending looks for news too, and what it finds the descriptor announces no more.
            self._wake.set()

    async def until_read(self, client: bytes) -> bool:
        """Wait until a client may be answered again; tell whether it may, READ_WITHIN_S later."""
        if not self._unread:
            return True
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + READ_WITHIN_S, _FIRST_LOOK_S
        while not self._unread.has_room(client):
            if loop.time() > until_s:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_LOOK_S)
        return True


class _Unread:
    """The large replies that have not left this process, by client."""

    def __init__(self) -> None:
        self._replies: dict[bytes, list[tuple[int, zmq.MessageTracker]]] = {}

    def __bool__(self) -> bool:
        return bool(self._replies)

    def add(self, client: bytes, nbytes: int, sent: zmq.MessageTracker | None) -> None:
        """Count a reply until it is sent; libzmq lets go of it, too, when its client is gone."""
        self._forget_sent()
        if sent is not None:
            self._replies.setdefault(client, []).append((nbytes, sent))

    def has_room(self, client: bytes) -> bool:
        """Tell whether a client may be answered; one that has read everything always may."""
        self._forget_sent()
        own = _total(self._replies.get(client, []))
        return not own or (
            own < MAX_UNREAD_BYTES and sum(map(_total, self._replies.values())) < MAX_UNREAD_IN_ALL
        )

    def is_over(self, within_s: float) -> bool:
        """Tell whether nothing is held any more, once the socket is closed."""
        try:
            for sent in [sent for replies in self._replies.values() for _, sent in replies]:
                sent.wait(within_s)
        except zmq.NotDone:
            return False
        return True

    def _forget_sent(self) -> None:
        for client, replies in list(self._replies.items()):
            replies[:] = [reply for reply in replies if not reply[1].done]
            if not replies:
                del self._replies[client]


def _total(replies: Sequence[tuple[int, zmq.MessageTracker]]) -> int:
    return sum(nbytes for nbytes, _ in replies)


def _content(frame: zmq.Frame) -> bytes | memoryview:
    return frame.bytes if len(frame) < codec.LARGE_BYTES else frame.buffer
