"""What the tests of the embedded server share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchserver.refserver.gpu.clients import Client, gpu_client
from tests.serverstage import NONCE


def residue() -> tuple[list[str], list[str], list[str], int]:
    """Segments, mappings and threads of ours, and how many descriptors are open."""
    segments = [path.name for path in Path("/dev/shm").iterdir() if NONCE in path.name]
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if NONCE in line]
    threads = [t.name for t in threading.enumerate() if t.name.startswith("refserver-")]
    return segments, maps, threads, len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = residue()
    yield
    after = residue()
    assert after[:3] == ([], [], [])
    assert after[3] <= before[3]


@pytest.fixture
def client() -> Iterator[Client]:
    """Give a client on a GPU, for tests that are marked `torch`."""
    with gpu_client() as client:
        yield client
