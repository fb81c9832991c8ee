"""Real LMCache servers of the release under test, one for each way of starting it.

BENCH_SERVER_REAL_PYTHON names the python of an environment with lmcache; which release it holds is
read from the environment itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.dialect import Dialect
from protocol.dialects import dialect_of
from tests.mitm.running import Urls
from tests.mitm.servers import Server, real_server
from tests.real.releases import Release, release_named
from tests.room import clear

VARIABLE = "BENCH_SERVER_REAL_PYTHON"
RELEASE_VARIABLE = "BENCH_SERVER_REAL_RELEASE"
IN_DEPTH = "0.5.6"
"""The release that the proxy of tests/mitm speaks, and whose chunk hashes are recorded."""

_ASK_RELEASE = "from importlib.metadata import version; print(version('lmcache'))"

StartServer = Callable[..., AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment under test."""

    python: str
    release: Release
    logs: Path

    def start(
        self, *options: str, serves: str = "", pool: str = ""
    ) -> AbstractContextManager[Server]:
        """Start its server, with the widest mode that it has on CPU, unless `serves` says another.

        `pool` is the name of a shared-memory pool; without one, engine_driven goes inline.
        """
        mode = self.release.mode_options(serves or self.release.widest_on_cpu, pool)
        log = self.logs / f"server{len(list(self.logs.iterdir()))}.log"
        return real_server(self.python, log, [*mode, *options])


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return the environment that the variables name; they must agree with what is in it."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.fail(f"{VARIABLE} is not set: it must name the python of an lmcache environment")
    answer = subprocess.run(
        [python, "-c", _ASK_RELEASE], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    held, said = answer.stdout.strip(), os.environ.get(RELEASE_VARIABLE)
    if said and said != held:
        pytest.fail(f"{RELEASE_VARIABLE} is {said}, but {python} has lmcache {held}")
    return Environment(
        python=python, release=release_named(held), logs=tmp_path_factory.mktemp("servers")
    )


@pytest.fixture(scope="session")
def dialect(environment: Environment) -> Dialect:
    """Return how the release under test is spoken to; every release here has a dialect."""
    return dialect_of(environment.release.name)


@pytest.fixture(scope="session")
def in_depth(environment: Environment) -> None:
    """Skip what one release alone is put through; test_matrix_real.py is for every release."""
    if environment.release.name != IN_DEPTH:
        pytest.skip(f"{IN_DEPTH} alone is tested in depth; every release by test_matrix_real.py")


@pytest.fixture(scope="session")
def start_server(environment: Environment) -> StartServer:
    """Return how to start a server."""
    return environment.start


@pytest.fixture(scope="session")
def one_server(start_server: StartServer) -> Iterator[Urls]:
    """What `real` is made of, with what earlier tests have stored."""
    with start_server() as running:
        yield running.urls


@pytest.fixture(scope="session")
def one_pooled_server(start_server: StartServer) -> Iterator[Urls]:
    """What `real_pooled` is made of, with what earlier tests have stored."""
    with start_server(pool=f"bstest{os.getpid()}") as running:
        yield running.urls


@pytest.fixture
def real(one_server: Urls, dialect: Dialect) -> Urls:
    """An empty real server that serves both modes, without a pool: engine_driven goes inline.

    All tests share it, and one alone never stores so much that it evicts.
    """
    clear(one_server, dialect.http)
    return one_server


@pytest.fixture
def real_pooled(one_pooled_server: Urls, dialect: Dialect) -> Urls:
    """An empty real server with a shared-memory pool, shared by all tests."""
    clear(one_pooled_server, dialect.http)
    return one_pooled_server
