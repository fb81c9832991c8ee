"""A server's pool, for the tests of what reads and writes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchserver.shmnames import SHM_DIR
from tests.benchserver.client.poolfile import NAME, PoolFile


@pytest.fixture
def server_pool() -> Iterator[PoolFile]:
    """Make a pool under NAME, as a server would."""
    yield PoolFile()
    (SHM_DIR / NAME).unlink()
