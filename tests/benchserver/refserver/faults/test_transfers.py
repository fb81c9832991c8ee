"""Faults that touch the client's own memory, on the server's own handlers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faultstage import BS, DONE, FROM, TO, Stage


@pytest.mark.asyncio
async def test_half_is_left_as_it_was(stage: Stage) -> None:
    stage.switch("half_retrieve:rank=0")
    before = [page[:, TO].copy() for page in stage.pages[0]]
    await stage.round_trip()
    for page, old in zip(stage.pages[0], before, strict=True):
        assert np.array_equal(page[:, TO[:2]], page[:, FROM[:2]])
        assert np.array_equal(page[:, TO[2:]], old[:, 2:])


@pytest.mark.asyncio
async def test_blocks_beside_and_blocks_read_are_overwritten(stage: Stage) -> None:
    page = stage.pages[0][0]
    before = page.copy()
    stage.switch("canary_overwrite:rank=0", "source_overwrite:rank=0")
    await stage.round_trip()
    changed = {int(block) for block in np.argwhere(page != before)[:, 1]} - set(TO)
    assert changed == {max(TO) + 1, FROM[0]}


@pytest.mark.asyncio
async def test_ignored_skip_writes_what_must_be_left(stage: Stage) -> None:
    for skip_is_ignored in (False, True):
        stage.switch(*(["ignored_skip"] if skip_is_ignored else []))
        stage.pages[0][0][:, TO] = 0
        await stage.store("a")
        await stage.store("a", 1)
        assert await stage.lookup("a") == 2
        assert await stage.retrieve("a", skip=BS) == DONE
        assert bool(stage.pages[0][0][:, TO[0]].any()) is skip_is_ignored
