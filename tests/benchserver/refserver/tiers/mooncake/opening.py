"""A mooncake tier that is closed when a block ends, its process with it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.mooncake.tier import MooncakeTier


@asynccontextmanager
async def opened(config: MooncakeConfig) -> AsyncIterator[MooncakeTier]:
    tier = MooncakeTier(config)
    try:
        yield tier
    finally:
        await tier.close()
        with pytest.raises(ProcessLookupError):
            os.kill(tier._client.pid, 0)
