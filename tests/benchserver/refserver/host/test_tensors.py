"""A client's tensors in shared memory: mapped as described, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchserver.refserver.host.tensors import MappedTensors
from benchserver.refserver.pages.layout import KvLayout, layout_of
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CpuShmHandle
from tests.faultstage import BS, CHUNK, SHAPE, client_memory

pytestmark = pytest.mark.usefixtures("leak_free")


def layout(handles: list[CpuShmHandle]) -> KvLayout:
    return layout_of(handles, {"kv_layout": "NHD"}, [], engine_type="vllm", chunk_size=CHUNK)


def mappings(name: str) -> int:
    return Path("/proc/self/maps").read_text().count(name.removeprefix("/"))


def test_a_segment_of_several_tensors_is_mapped_once_and_let_go() -> None:
    with client_memory(1) as (handles, pages):
        mine = mappings(handles[0].shm_name)
        tensors = MappedTensors(layout(handles), handles)
        assert mappings(handles[0].shm_name) == mine + 1
        assert tensors.num_blocks == SHAPE[1]
        for seen, page in zip(tensors.pages(), pages, strict=True):
            assert np.array_equal(seen, page)
        del seen
        tensors.unmap()
        assert mappings(handles[0].shm_name) == mine


def test_blocks_are_copies_to_read_and_are_written_through() -> None:
    with client_memory(1) as (handles, pages):
        tensors = MappedTensors(layout(handles), handles)
        copy = tensors.read(1, [3, 5])
        assert copy.shape == (2, 2, BS, *SHAPE[3:])
        assert np.array_equal(copy, pages[1][:, [3, 5]])
        copy[:] = 7
        assert not (pages[1][:, 3] == 7).all()
        tensors.write(1, [8, 9], copy)
        assert (pages[1][:, [8, 9]] == 7).all()
        tensors.order_after(b"any event")
        tensors.unmap()


def test_layers_are_hashed_in_their_own_order_of_axes() -> None:
    with client_memory(1) as (handles, pages):
        tensors = MappedTensors(layout(handles), handles)
        for layer, page in zip(tensors.hashed_layers(), pages, strict=True):
            assert layer.tensor.shape == SHAPE
            assert layer.dtype == "float16"
            assert np.array_equal(layer.tensor, page)
        del layer
        tensors.unmap()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/", "is not the name of a shared-memory segment"),
        ("/a/b", "is not the name"),
        ("/a\0b", "is not the name"),
        ("/" + "x" * 256, "is not the name"),
        ("/bench-server-never-made", "No such file"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_and_nothing_stays_mapped(
    name: str, reason: str
) -> None:
    with client_memory(1) as (handles, _):
        mine = mappings(handles[0].shm_name)
        odd = [handles[0], replace(handles[1], shm_name=name)]
        with pytest.raises(RefusalError, match=reason):
            MappedTensors(layout(handles), odd)
        assert mappings(handles[0].shm_name) == mine


def test_a_segment_that_is_too_small_is_refused() -> None:
    with client_memory(1) as (handles, _):
        large = [replace(handle, nbytes=handle.nbytes + 1) for handle in handles]
        with pytest.raises(RefusalError, match=rf" has {handles[0].nbytes} bytes, expected "):
            MappedTensors(layout(handles), large)


def test_a_tensor_larger_than_its_memory_is_refused() -> None:
    with client_memory(1) as (handles, _):
        folded = [replace(handle, nbytes=64) for handle in handles]
        with pytest.raises(RefusalError, match=r"a tensor of shape .* overlaps itself"):
            MappedTensors(layout(handles), folded)
