"""Bytes of other objects, with the locks where they belong."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.ops import Op
from tests.faultstage import FROM, TO, Stage


@pytest.mark.asyncio
async def test_stale_data_is_what_was_stored_before(stage: Stage) -> None:
    stage.switch("stale_data")
    old = stage.pages[0][0][:, FROM].copy()
    await stage.round_trip("a")
    assert stage.fired() == [0]
    stage.pages[0][0][:, FROM] += 1
    await stage.round_trip("b")
    assert stage.fired() == [2]
    assert np.array_equal(stage.pages[0][0][:, TO], old)
    assert stage.locks() == 0
    for name in ("a", "b"):
        await stage.call(Op.END_SESSION, name)
    assert stage.core.sessions.count == 0
