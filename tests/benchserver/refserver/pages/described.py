"""Tensors as a client describes them when it registers, and the layout that a server reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from benchserver.refserver.pages.layout import KvLayout, layout_of
from protocol.dtypes import ITEM_BYTES
from protocol.handles import CpuShmHandle, contiguous_strides

CHUNK = 8


def handle(shape: tuple[int, ...], dtype: str = "float16", offset: int = 0) -> CpuShmHandle:
    items = offset + int(np.prod(shape))
    return CpuShmHandle(
        shm_name="s",
        nbytes=items * ITEM_BYTES[dtype],
        dtype=dtype,
        shape=shape,
        stride=contiguous_strides(shape),
        storage_offset=offset,
    )


def layout(
    handles: list[CpuShmHandle],
    infos: Sequence[dict[str, Any]] = (),
    hints: Mapping[str, str] = MappingProxyType({}),
) -> KvLayout:
    return layout_of(handles, hints, infos, engine_type="vllm", chunk_size=CHUNK)


def info(group: int, layers: list[int], tokens: int = 0) -> dict[str, Any]:
    return {"engine_group_id": group, "layer_indices": layers, "tokens_per_block": tokens}


NHD = handle((2, 6, 4, 3, 5))
MLA = handle((6, 4, 7))
