"""Tests that need a CUDA device: without one they fail, in one line, since they were asked for.

BENCH_SERVER_GPU_RPC and BENCH_SERVER_GPU_HTTP name a server that already runs, such as a real one
on the same device; some tests are then made against that one too.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator

import pytest

from tests.gpu.processes import no_device_reason
from tests.mitm.running import Urls
from tests.mitm.servers import embedded_server
from tests.room import make_room

RPC_VARIABLE, HTTP_VARIABLE = "BENCH_SERVER_GPU_RPC", "BENCH_SERVER_GPU_HTTP"
L1_GB = "2"
READY_S = 90.0
"""The server loads torch and pins its memory first."""

FOREIGN_WARNINGS = ("default:::torch", "default:::triton", "default:::cupy")
"""Warnings are errors here, except those that these give about themselves."""


@functools.cache
def why_no_device() -> str:
    """Return why nothing can be tested here, or ""; loads torch, and starts CUDA."""
    if reason := no_device_reason():
        return reason
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torch
        except ImportError as error:
            return f"torch cannot be loaded: {error}"
        try:
            torch.ones(1, device="cuda").sum().item()
        except RuntimeError as error:
            return f"CUDA does not work: {str(error).splitlines()[0]}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            for text in FOREIGN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(text))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and (reason := why_no_device()):
        pytest.exit(f"tests marked gpu were asked for, but {reason}", returncode=1)


def servers_to_test() -> list[str]:
    """Return `embedded`, and `running` if the variables name a server."""
    given = os.environ.get(RPC_VARIABLE) or os.environ.get(HTTP_VARIABLE)
    return ["embedded", "running"] if given else ["embedded"]


@pytest.fixture(scope="session")
def embedded_gpu() -> Iterator[Urls]:
    """An embedded server that serves GPU clients, with a shared pool for engine_driven ones."""
    options = ("--gpu", "--l1-size-gb", L1_GB, "--shm-name", f"gputests{os.getpid()}")
    with embedded_server(*options, ready_s=READY_S) as server:
        yield server.urls


@pytest.fixture(params=servers_to_test())
def gpu_server(request: pytest.FixtureRequest) -> Urls:
    """Every server that the tests were told of; one that runs is emptied before each test."""
    if request.param == "running":
        for name in (RPC_VARIABLE, HTTP_VARIABLE):
            if not os.environ.get(name):
                pytest.fail(f"{name} is not set: {RPC_VARIABLE} and {HTTP_VARIABLE} go together")
        server = Urls(rpc_url=os.environ[RPC_VARIABLE], http_url=os.environ[HTTP_VARIABLE])
        make_room(server, sequence_bytes=1, sequences=1)
        return server
    urls: Urls = request.getfixturevalue("embedded_gpu")
    return urls
