"""Other servers than LMCache that may listen at --rpc-url; each in a thread, on a free port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import zmq

_PIECE = 65536


@contextmanager
def router(answer: Callable[[list[bytes]], list[bytes]] | None) -> Iterator[int]:
    """A ROUTER that answers each request's frames with others, or None: never; its port."""
    context = zmq.Context[zmq.Socket[bytes]]()
    listener = context.socket(zmq.ROUTER)
    listener.setsockopt(zmq.LINGER, 0)
    port = listener.bind_to_random_port("tcp://127.0.0.1")
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            if listener.poll(20):
                identity, *frames = listener.recv_multipart()
                if answer is not None:
                    listener.send_multipart([identity, *answer(frames)])
        listener.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield port
    finally:
        ended.set()
        thread.join()
        context.term()


@contextmanager
def tcp(said: bytes | None) -> Iterator[int]:
    """A TCP port that says something to whatever it hears, and hangs up, or None: is mute."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.02)
    ended = threading.Event()
    held: list[socket.socket] = []

    def work() -> None:
        while not ended.is_set():
            try:
                link, _ = listener.accept()
            except TimeoutError:
                continue
            if said is None:
                held.append(link)
                continue
            link.settimeout(0.2)
            with link:
                try:
                    link.recv(_PIECE)
                    link.sendall(said)
                except OSError:
                    continue  # somebody who only looked whether anybody listens

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        thread.join()
        for link in held:
            link.close()
        listener.close()


@contextmanager
def closed() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


_NO_RELEASE = "the server's release is unknown: "
_NO_ZMQ = (
    "something listens at --rpc-url, but it does not speak ZMQ: no LMCache MP server is there (is "
    "it the HTTP port, or a gRPC server?), or one that has no room for another client"
)
_SILENT = (
    "something listens at --rpc-url, but it has not spoken ZMQ yet: the server is frozen (stopped, "
    "or without a CPU), or it is not an LMCache MP server; "
)

ODD_PEERS: Mapping[str, tuple[Callable[[], AbstractContextManager[int]], str]] = {
    "silent": (lambda: router(None), f"{_NO_RELEASE}it answers no question that an LMCache MP"),
    "echo": (lambda: router(lambda frames: frames), f"{_NO_RELEASE}its answer to operation 8,"),
    "garbage": (
        lambda: router(lambda frames: [*frames, b"\xc1\xff"]),
        f"{_NO_RELEASE}a malformed answer (noop result: 2 bytes starting b'\\xc1\\xff'",
    ),
    "surprise": (
        lambda: router(lambda frames: [*frames, b"\xc3"]),
        f"{_NO_RELEASE}its answer to operation 8, bool 'True', is not that of any release; say it",
    ),
    "HTTP": (lambda: tcp(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _NO_ZMQ),
    "gRPC": (lambda: tcp(b"\0\0\0\4\0\0\0\0\0"), _NO_ZMQ),
    "mute": (lambda: tcp(None), _SILENT),
}
"""How to start each, and in which words it is refused."""
