"""Makes the pools of all ranks on the GPUs; the first call here is what imports torch."""

from __future__ import annotations

import threading

from benchserver.cuda.reason import reason_of
from benchserver.errors import FatalError
from benchserver.kv.content import PoolContent
from benchserver.kv.gpu.events import CudaEvents
from benchserver.kv.gpu.lanes import Lanes
from benchserver.kv.gpu.memory import CudaMemory, require_device_room
from benchserver.kv.gpu.pool import CudaPool
from benchserver.kv.gpu.requirements import require_cuda
from benchserver.kv.layout import place_tensors
from benchserver.kv.placement import CudaIpc, RankDevice, device_numbers


def assign_devices(ranks: int, nbytes: int) -> list[RankDevice]:
    """Return a device for each rank, after looking whether `nbytes` bytes a rank fit there.

    Raises FatalError, in one line, without torch, without a device, or without the room.
    """
    require_cuda()
    import torch

    try:
        numbers = device_numbers(ranks, torch.cuda.device_count())
        facts = [torch.cuda.get_device_properties(number) for number in numbers]
        devices = [
            RankDevice(rank=rank, number=number, name=fact.name, uuid=str(fact.uuid).lower())
            for rank, (number, fact) in enumerate(zip(numbers, facts, strict=True))
        ]
    except (RuntimeError, AssertionError, AttributeError) as error:
        raise FatalError(f"--mode gpu: CUDA does not start: {reason_of(error)}") from error
    require_device_room(nbytes, numbers)
    return devices


def make_pool(
    content: PoolContent,
    device: RankDevice,
    *,
    ipc: CudaIpc,
    cancel: threading.Event,
    lanes: Lanes | None = None,
) -> CudaPool:
    """Return a rank's pool in the memory of its device; FatalError if it cannot be made.

    Pools that share `lanes` pin no more memory than one does.
    """
    import torch

    memory = CudaMemory(place_tensors(content.spec)[1], device=device.number, ipc=ipc)
    try:
        stream = torch.cuda.Stream(memory.device)
        return CudaPool(
            content,
            memory=memory,
            events=CudaEvents(memory.device, stream, cancel=cancel),
            cancel=cancel,
            lanes=lanes,
        )
    except BaseException:
        memory.close()
        raise
