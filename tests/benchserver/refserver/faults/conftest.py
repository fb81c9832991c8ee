"""What the tests of faults share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.faultstage import Stage, staged


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    """Give a server without sockets, with two registered ranks."""
    async with staged() as stage:
        yield stage
