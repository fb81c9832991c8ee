"""What a run takes from outside itself: a server's connections, its HTTP API, threads, memory.

The defaults are the real ones; tests give others, and need neither a server nor shared memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchserver.client.http import HttpApi
from benchserver.config.engine import Engine
from benchserver.config.target import Target
from benchserver.geometry import Geometry
from benchserver.outlet import write_now
from benchserver.stage.connections import Reach, reach_zmq
from benchserver.tasks import Threads

if TYPE_CHECKING:
    from benchserver.stage.pools import Pools


_HOST_THREADS = 4
_GPU_THREADS = 16
"""With the KV in GPU memory, cores have nothing to do but MD5: half a GB/s a thread."""


def start_threads(engine: Engine | None, waiting: int) -> Threads:
    """Return the worker threads of a run; on GPUs so many transfers wait in one for events."""
    cpus = os.cpu_count() or 1
    if engine is None or engine.mode == "cpu":
        return Threads(min(_HOST_THREADS, cpus))
    return Threads(max(min(_GPU_THREADS, cpus), waiting + 1))


def open_http(target: Target) -> HttpApi:
    """Return the HTTP API at --url; nothing is sent yet."""
    return HttpApi(
        target.http_url,
        timeout_s=target.timeout_s,
        token=target.http_token,
        ca=target.http_ca,
    )


def load_pools(
    engine: Engine, geometry: Geometry, nonce: bytes, cancel: threading.Event, workers: int
) -> Pools:
    """Return the pools that so many workers of an engine ask for."""
    # Loaded here: the first call to a server does not wait for numpy.
    from benchserver.stage.pools import make_pools

    return make_pools(engine, geometry, nonce, cancel, workers)


def to_stderr(text: str) -> None:
    """Write at once as much of a text as can be written without waiting, in any thread."""
    write_now(2, text.encode(errors="backslashreplace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a run calls.

    `threads` is given the engine and how many transfers may be waited for at once; `pools` the
    engine, the geometry, the run's nonce, what cancels work, and the number of workers;
    `show_stacks` where this process stands, if nothing happens any more.
    """

    reach: Reach = reach_zmq
    http: Callable[[Target], HttpApi] = open_http
    threads: Callable[[Engine | None, int], Threads] = start_threads
    show_stacks: Callable[[str], object] = to_stderr
    pools: Callable[[Engine, Geometry, bytes, threading.Event, int], Pools] = load_pools
