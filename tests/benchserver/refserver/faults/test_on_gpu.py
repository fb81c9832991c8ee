"""Each fault does on a GPU what it does on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.benchserver.refserver.gpu.clients import (
    Client,
    gpu_client,
    host_client,
)
from tests.faultstage import CHUNK

pytestmark = pytest.mark.torch

FAULTS = [
    "noop_retrieve",
    "half_retrieve",
    "flip_byte:layer=1",
    "flip_byte:layer=0,rank=1,chunk=0",
    "swap_chunks",
    "layer_mixup",
    "plane_mixup",
    "rank_mixup",
    "stale_data",
    "canary_overwrite",
    "source_overwrite",
    "ignored_skip",
    "refuse_retrieve",
    "refuse_store",
    "drop_store",
    "stuck_store",
    "early_ack",
    "late_read",
    "lost_chunk",
    "full_l1",
    "clear_between",
]


async def two_sequences(client: Client, fault: str) -> dict[str, Any]:
    """Store and retrieve two sequences on both ranks under a fault; return all that it shows."""
    client.stage.switch(fault)
    shown: dict[str, Any] = {}
    for name in ("a", "b"):
        client.rewrite(ord(name))
        for rank in range(2):
            stored = await client.store(name, rank)
            shown[f"store {name} {rank}"] = stored.ok, bool(stored.event)
        await client.settle()
        shown[f"hits {name}"] = await client.stage.lookup(name)
        for rank in range(2):
            # Where the other chunk's first block is skipped too.
            restored = await client.retrieve(name, rank, skip=CHUNK // 2)
            shown[f"retrieve {name} {rank}"] = restored.ok, restored.ok and bool(restored.event)
        await client.settle()
        shown[f"memory {name}"] = [client.pages(rank).copy() for rank in range(2)]
        shown[f"locks {name}"] = client.counts().read_locked
    shown["fired"] = client.stage.fired()
    return shown


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_does_on_a_gpu_what_it_does_on_the_host(fault: str) -> None:
    async with host_client() as client:
        on_host = await two_sequences(client, fault)
    with gpu_client() as client:
        on_gpu = await two_sequences(client, fault)
    assert on_host.keys() == on_gpu.keys()
    for name, value in on_host.items():
        assert np.array_equal(on_gpu[name], value), name
    assert sum(on_host["fired"]) > 0
