"""TLS for tests: a certificate of our own making, no key is kept; and a front that speaks it."""

from __future__ import annotations

import asyncio
import queue
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")
_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A self-signed certificate and its key, as PEM files."""

    path: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return what a server presents it with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


def make_certificate(folder: Path, *names: str) -> Certificate:
    """Make one, valid from now on for these names, such as `IP:127.0.0.1` or `DNS:a.example`."""
    assert OPENSSL is not None
    made = Certificate(path=folder / "certificate.pem", key=folder / "key.pem")
    command = [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=bench-server test"]
    command += ["-addext", f"subjectAltName={','.join(names)}"]
    command += ["-keyout", str(made.key), "-out", str(made.path)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made


@contextmanager
def tls_before(port: int, certificate: Certificate) -> Iterator[int]:
    """Speak TLS on a port of its own before a server that does not; in a thread."""
    ready: queue.Queue[tuple[int, Callable[[], object]]] = queue.Queue()
    thread = threading.Thread(
        target=lambda: asyncio.run(_forward(port, certificate.server_context(), ready.put))
    )
    thread.start()
    front, stop = ready.get(timeout=_WITHIN_S)
    try:
        yield front
    finally:
        stop()
        thread.join(_WITHIN_S)
        assert not thread.is_alive()


async def _forward(
    port: int, context: ssl.SSLContext, ready: Callable[[tuple[int, Callable[[], object]]], None]
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    links: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # a peer that hangs up ends its link, as it should
        finally:
            writer.close()

    def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def both() -> None:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

        task = asyncio.ensure_future(both())
        links.add(task)
        task.add_done_callback(links.discard)

    listener = await asyncio.start_server(link, "127.0.0.1", 0, ssl=context)
    ready((listener.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stop.set)))
    await stop.wait()
    listener.close()
    for task in links:
        task.cancel()
    await asyncio.gather(*links, return_exceptions=True)
