"""Real LMCache servers, one for each way of starting it that the tests need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.mitm.running import Urls
from tests.mitm.servers import Server, real_server

VARIABLE = "BENCH_SERVER_REAL_PYTHON"
AUTO = ("--supported-transfer-mode", "auto")

StartServer = Callable[..., AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> StartServer:
    """Return how to start a real server with further options."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.fail(f"{VARIABLE} is not set: it must name the python of an lmcache environment")
    logs = tmp_path_factory.mktemp("servers")
    count = iter(range(1000))

    def start(*options: str) -> AbstractContextManager[Server]:
        return real_server(python, logs / f"server{next(count)}.log", options)

    return start


@pytest.fixture(scope="session")
def real(start_server: StartServer) -> Iterator[Urls]:
    """A real server that serves both modes, without a pool: engine_driven goes inline."""
    with start_server(*AUTO) as running:
        yield running.urls


@pytest.fixture(scope="session")
def real_pooled(start_server: StartServer) -> Iterator[Urls]:
    """A real server with a shared-memory pool."""
    with start_server(*AUTO, "--shm-name", f"bstest{os.getpid()}") as running:
        yield running.urls
