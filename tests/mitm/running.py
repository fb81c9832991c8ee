"""Runs both proxies: as a coroutine until told to stop, or in a thread beside a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from tests.mitm.fault import Fault
from tests.mitm.httpproxy import HttpProxy
from tests.mitm.proxy import RpcProxy

_READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 60.0
DELAY_S = 1.15
"""Longer than the deadline of 1 s that tests of late replies set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """Where a server, or a proxy before it, listens."""

    rpc_url: str
    http_url: str


def _nothing_to_kill() -> None:
    raise RuntimeError("this fault kills the server, and nobody said how")


async def serve(
    fault: Fault,
    server: Urls,
    *,
    on_ready: Callable[[Urls], None],
    stop: asyncio.Event,
    delay_s: float = DELAY_S,
    kill: Callable[[], None] = _nothing_to_kill,
) -> None:
    """Serve until `stop` is set; raises the first error of a handler, a bug of the proxy."""
    async with AsyncExitStack() as cleanup:
        rpc = RpcProxy(server.rpc_url, fault.rpc, delay_s=delay_s, kill=kill)
        cleanup.push_async_callback(rpc.close)
        http = HttpProxy(server.http_url, fault.digests)
        cleanup.push_async_callback(http.close)
        await rpc.start()
        http_port = await http.start()
        on_ready(
            Urls(rpc_url=f"tcp://127.0.0.1:{rpc.port}", http_url=f"http://127.0.0.1:{http_port}")
        )
        await stop.wait()
    if rpc.failures:
        raise rpc.failures[0]


@contextmanager
def running_proxy(
    fault: Fault,
    server: Urls,
    *,
    delay_s: float = DELAY_S,
    kill: Callable[[], None] = _nothing_to_kill,
) -> Iterator[Urls]:
    """Serve in a thread; raises what went wrong in it when the block ends."""
    ready, urls, errors = threading.Event(), list[Urls](), list[BaseException]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def on_ready(listening: Urls) -> None:
        urls.append(listening)
        ready.set()

    def work() -> None:
        try:
            loop.run_until_complete(
                serve(fault, server, on_ready=on_ready, stop=stop, delay_s=delay_s, kill=kill)
            )
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=work, name="mitm", daemon=True)
    thread.start()
    try:
        if not ready.wait(_READY_WITHIN_S) or not urls:
            raise RuntimeError(f"the proxy did not start: {errors}")
        yield urls[0]
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(_STOP_WITHIN_S)
    if thread.is_alive():
        raise RuntimeError("the proxy did not stop")
    if errors:
        raise errors[0]
