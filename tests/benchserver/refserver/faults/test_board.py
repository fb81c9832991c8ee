"""What is wrapped while faults are on, and that all of it is taken out again."""

from __future__ import annotations

import pytest

from benchserver.errors import UsageError
from protocol.ops import Op
from tests.faultstage import Stage


@pytest.mark.asyncio
async def test_without_a_fault_nothing_is_wrapped(stage: Stage) -> None:
    plain = dict(stage.handlers)
    stage.switch()
    assert stage.handlers == plain
    stage.switch("flip_byte", "lost_reply", "ignored_prefix", "digest_500")
    assert {op for op in plain if stage.handlers[op] is not plain[op]} == {
        Op.RETRIEVE,
        Op.PREPARE_RETRIEVE,
        Op.COMMIT_RETRIEVE,
    }
    assert stage.road.tamper is not None
    assert stage.board.answer_of("/cache/checksums") is not None
    chain = stage.core.namer.chain
    stage.switch()
    assert stage.handlers == plain
    assert stage.road.tamper is None
    assert stage.board.answer_of("/cache/checksums") is None
    assert stage.core.namer.chain is not chain
    await stage.round_trip()
    assert stage.restored(0).all()
    assert stage.restored(1).all()


@pytest.mark.asyncio
async def test_a_mistake_leaves_the_set_as_it_was(stage: Stage) -> None:
    stage.switch("leak_session@2")
    with pytest.raises(UsageError):
        stage.switch("flip_byte", "nonsense")
    assert [f["fault"] for f in stage.board.document()["faults"]] == ["leak_session@2"]
