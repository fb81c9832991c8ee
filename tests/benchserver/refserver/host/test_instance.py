"""A client on the host: its copies are done when they are answered, and it leaves at once."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from benchserver.clock import VirtualClock
from benchserver.refserver.copier import Copier
from benchserver.refserver.host.instance import MappedInstance
from benchserver.refserver.host.tensors import MappedTensors
from benchserver.refserver.pages.layout import layout_of
from benchserver.refserver.pages.transfer import ObjectCopy
from protocol.handles import CpuShmHandle
from tests.faultstage import BS, CHUNK, DONE, FROM, TO, client_memory

pytestmark = pytest.mark.usefixtures("leak_free")

WITHIN_S = 20.0
PER_CHUNK = CHUNK // BS


def instance_of(handles: list[CpuShmHandle], copier: Copier) -> MappedInstance:
    layout = layout_of(handles, {"kv_layout": "NHD"}, [], engine_type="vllm", chunk_size=CHUNK)
    tensors = MappedTensors(layout, handles)
    return MappedInstance(
        tensors, model_name="m", world_size=1, layout=layout, copier=copier, now_ns=0
    )


def copies(instance: MappedInstance, ids: list[int], data: list[np.ndarray]) -> list[ObjectCopy]:
    return [
        ObjectCopy(
            group=0,
            data=chunk,
            block_ids=tuple(ids[PER_CHUNK * index : PER_CHUNK * (index + 1)]),
            skip_blocks=0,
        )
        for index, chunk in enumerate(data)
    ]


@pytest.mark.asyncio
async def test_what_was_stored_is_retrieved_when_it_is_answered() -> None:
    copier = Copier()
    with client_memory(1) as (handles, pages):
        instance = instance_of(handles, copier)
        data = [np.zeros(instance.layout.group_bytes[0], np.uint8) for _ in range(2)]
        stored = await instance.store(b"", copies(instance, FROM, data))
        assert stored.answer == DONE
        restored = await instance.retrieve(b"", copies(instance, TO, data))
        assert restored.answer == DONE
        for page in pages:
            assert np.array_equal(page[:, TO], page[:, FROM])
        assert (await instance.store(b"", [])).answer == DONE
        assert instance.checked_event(memoryview(b"any")) == b"any"
        assert await instance.leave(VirtualClock()) == ""
        del page
    copier.close()


@pytest.mark.asyncio
async def test_who_leaves_is_unmapped_when_the_last_use_has_ended() -> None:
    copier, began, go_on = Copier(), threading.Event(), threading.Event()

    def digest(layers: object, ids: object, _size: object) -> object:
        began.set()
        assert go_on.wait(WITHIN_S)
        return ids

    with client_memory(1) as (handles, _):
        instance = instance_of(handles, copier)
        hashing = asyncio.ensure_future(instance.digests(digest, FROM, PER_CHUNK))
        assert await asyncio.to_thread(began.wait, WITHIN_S)
        assert await instance.leave(VirtualClock()) == ""
        assert instance.uses.count == 1
        assert instance.num_blocks == 16
        go_on.set()
        assert await hashing == FROM
        assert instance.uses.count == 0
    copier.close()
