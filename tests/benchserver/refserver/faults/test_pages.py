"""Chunks for faults to alter: a client's pages and chunk objects, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchserver.refserver.faults.call import Active, Call
from benchserver.refserver.faults.moments import EVERY_CALL
from benchserver.refserver.faults.pages import (
    Chunks,
    MappedChunks,
    ObjectChunks,
    encode_objects,
    inline_objects,
    is_done,
    mapped_chunks,
)
from benchserver.refserver.faults.settings import Settings
from benchserver.refserver.registry import EngineInstance, parse_engine_instance
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import RetrievePlan, TransferResult
from protocol.ops import Op
from tests.faultstage import CHUNK, DONE, FROM, TO, Stage, key

SLOTS, HIDDEN, LAYERS = 4, 3, 2


def engine(*, use_mla: bool) -> EngineInstance:
    fields = {
        "instance_id": 1,
        "model_name": "m",
        "world_size": 1,
        "block_size": 2,
        "num_layers": LAYERS,
        "hidden_dim_size": HIDDEN,
        "dtype_str": "float16",
        "use_mla": use_mla,
    }
    return parse_engine_instance(fields, chunk_size=SLOTS, now_ns=0)[1]


def call_of(stage: Stage, ids: list[list[int]], rank: int = 0, **changes: Any) -> Call:
    async def handle(_args: Sequence[Any]) -> Any:
        raise AssertionError("not handled here")

    active = Active(
        text="x",
        settings=Settings(),
        moment=EVERY_CALL,
        core=stage.core,
        start=stage.later.append,
    )
    args = (key("a", rank, **changes), rank, ids, CPU_EVENT_STUB)
    return Call(active=active, op=Op.STORE, args=args, handle=handle)


def swap(chunks: Chunks) -> None:
    first, second = chunks.read(0), chunks.read(1)
    chunks.write(0, second)
    chunks.write(1, first)


@pytest.mark.parametrize("use_mla", [False, True])
def test_objects_are_read_as_copies_and_written_through(use_mla: bool) -> None:
    instance = engine(use_mla=use_mla)
    rng = np.random.default_rng(7)
    objects = [np.frombuffer(rng.bytes(instance.object_bytes), np.uint8).copy() for _ in range(2)]
    before = [data.copy() for data in objects]
    chunks = ObjectChunks(objects, instance)
    assert (chunks.count, chunks.layers) == (2, LAYERS)
    planes = 1 if use_mla else 2
    assert [layer.shape for layer in chunks.read(0)] == [(planes, SLOTS, HIDDEN)] * LAYERS
    chunks.read(0)[0][:] = 0
    assert np.array_equal(objects[0], before[0])
    swap(chunks)
    assert np.array_equal(objects[0], before[1])
    assert np.array_equal(objects[1], before[0])


def test_objects_on_their_way_inline_come_back_as_they_were() -> None:
    instance = engine(use_mla=False)
    objects = [np.full(instance.object_bytes, value, np.uint8) for value in (1, 2)]
    plan = RetrievePlan(success=True, slots=(), data=encode_objects(objects, instance))
    assert [list(data) for data in inline_objects(plan)] == [list(data) for data in objects]


def mapped(stage: Stage, ids: list[int]) -> MappedChunks:
    chunks = mapped_chunks(call_of(stage, [ids]))
    assert chunks is not None
    return chunks


@pytest.mark.asyncio
async def test_a_clients_pages_are_read_and_written_by_block(stage: Stage) -> None:
    source, target = mapped(stage, FROM), mapped(stage, TO)
    assert (source.count, source.layers) == (2, LAYERS)
    target.write_all(await source.run(source.read_all, range(2)))
    assert stage.restored(0).all()
    before = [page.copy() for page in stage.pages[0]]
    swap(target)
    for page, old in zip(stage.pages[0], before, strict=True):
        assert np.array_equal(page[:, TO], old[:, [*TO[2:], *TO[:2]]])


@pytest.mark.asyncio
async def test_one_bit_of_one_tensor_is_flipped(stage: Stage) -> None:
    before = [page.copy() for page in stage.pages[0]]
    mapped(stage, FROM).flip(1, 6)
    assert np.array_equal(stage.pages[0][0], before[0])
    wrong = stage.pages[0][1] ^ before[1]
    assert wrong.sum() == wrong[:, 6].sum() == 1


@pytest.mark.asyncio
async def test_a_call_that_names_no_pages_has_none(stage: Stage) -> None:
    assert mapped_chunks(call_of(stage, [FROM], rank=9)) is None
    assert mapped_chunks(call_of(stage, [FROM, FROM])) is None
    assert mapped_chunks(call_of(stage, [FROM[:3]])) is None
    assert mapped_chunks(call_of(stage, [[1, 2, 3, 99]])) is None
    assert mapped_chunks(call_of(stage, [FROM], start=CHUNK, end=CHUNK)) is None


def test_what_is_an_answer_of_success() -> None:
    failed = TransferResult(event=CPU_EVENT_STUB, ok=False)
    for done in (True, DONE, RetrievePlan(success=True, slots=(), data=b"")):
        assert is_done(done)
    for other in (False, 1, None, failed, RetrievePlan(success=False, slots=(), data=b"")):
        assert not is_done(other)
