"""A registered GPU client: its transfers, digests and its leave, whatever the device does."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from benchserver.clock import NS_PER_S, idle
from benchserver.refserver.gpu import instance as cudainstance
from benchserver.refserver.gpu.instance import CudaInstance
from benchserver.refserver.gpu.runtime import MAX_HASHERS, CudaRuntime
from benchserver.refserver.refusal import RefusalError
from protocol.handles import CPU_EVENT_STUB
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.benchserver.refserver.gpu.clients import (
    LAYERS,
    SIZE,
    WITHIN_S,
    Client,
    ended,
    gpu_client,
    host_client,
)
from tests.cudastage import (
    EVENT,
    FOREIGN_EVENT,
    HostStream,
    cpu_instance,
    cuda_handle,
)
from tests.faultstage import CHUNK, FROM, SHAPE, TO, key

pytestmark = pytest.mark.torch


@pytest.mark.asyncio
async def test_a_store_is_answered_before_it_is_visible_and_retrieved_after(client: Client) -> None:
    for rank in range(2):
        client.streams[rank].busy = True
        reply = await client.store("a", rank)
        assert (reply.ok, len(reply.event)) == (True, 64)
        assert client.streams[rank].waited == [EVENT]
    assert await client.stage.lookup("a") == 0
    assert client.counts().write_locked == 4
    for stream in client.streams:
        stream.busy = False
    await client.settle()
    assert client.counts().write_locked == 0
    assert await client.stage.lookup("a") == 2
    for rank in range(2):
        reply = await client.retrieve("a", rank)
        assert (reply.ok, len(reply.event)) == (True, 64)
        pages = client.pages(rank)
        assert np.array_equal(pages[:, :, TO], pages[:, :, FROM])
    assert client.counts().read_locked == 4
    await client.settle()
    assert client.counts().read_locked == 0


@pytest.mark.asyncio
async def test_skipped_tokens_stay_as_they_are(client: Client) -> None:
    for rank in range(2):
        await client.store("a", rank)
    await client.settle()
    assert await client.stage.lookup("a") == 2
    client.pages(0)[:, :, TO] = 7
    assert (await client.retrieve("a", 0, skip=CHUNK + 2)).ok
    pages = client.pages(0)
    assert (pages[:, :, TO[:3]] == 7).all()
    assert np.array_equal(pages[:, :, TO[3:]], pages[:, :, FROM[3:]])


@pytest.mark.asyncio
async def test_with_nothing_to_do_the_answer_carries_an_event_all_the_same(client: Client) -> None:
    await client.store("a")
    await client.settle()
    again = await client.store("a")
    assert (again.ok, len(again.event)) == (True, 64)
    client.stage.switch("full_l1")
    full = await client.store("b")
    assert (full.ok, len(full.event)) == (True, 64)
    assert not client.stage.later
    assert any("no room" in line for line in client.stage.lines)


@pytest.mark.asyncio
async def test_a_failure_without_work_on_the_device_has_no_event(client: Client) -> None:
    call = client.stage.call
    short = await call(Op.STORE, key("a", 0), 0, [FROM[:1]], EVENT)
    outside = await call(Op.STORE, key("a", 0), 0, [[1, 2, 3, 99]], EVENT)
    missing = await client.retrieve("a")
    assert short == outside == missing == TransferResult(event=b"", ok=False)
    assert not client.streams[0].waited


@pytest.mark.asyncio
@pytest.mark.parametrize("event", [b"", CPU_EVENT_STUB, EVENT + b"x", FOREIGN_EVENT])
async def test_a_request_with_a_useless_event_gets_no_answer(client: Client, event: bytes) -> None:
    client.event = event
    with pytest.raises(RefusalError, match=r"^an event handle of \d+ bytes|cannot be opened"):
        await client.store("a")
    assert client.counts().objects == 0
    client.event = EVENT
    for rank in range(2):
        await client.store("a", rank)
    await client.settle()
    assert await client.stage.lookup("a") == 2
    client.event = event
    with pytest.raises(RefusalError):
        await client.retrieve("a")
    await client.stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None), 2)
    assert client.counts().read_locked == 0
    assert not client.stage.later


@pytest.mark.asyncio
async def test_memory_is_unmapped_when_the_last_transfer_has_ended(client: Client) -> None:
    gone = threading.Event()
    memory = np.zeros(SIZE, dtype=np.uint16)
    instance, stream = cpu_instance(memory, [cuda_handle(SHAPE)], chunk_size=CHUNK, unmap=gone.set)
    client.stage.core.registry.mapped[7] = instance
    reply = await client.stage.call(Op.STORE, key("a", 0), 7, [FROM], EVENT)
    assert reply.ok
    assert await client.stage.call(Op.UNREGISTER_KV_CACHE, 7) is VOID
    assert not gone.is_set()
    assert 7 not in client.stage.core.registry.mapped
    await client.settle()
    assert gone.wait(WITHIN_S)
    assert stream.is_idle()


def test_memory_that_a_stream_may_still_touch_stays_mapped() -> None:
    gone: list[int] = []
    memory, runtime = np.zeros(SIZE, dtype=np.uint16), CudaRuntime()
    leaving = runtime.leaving

    def instance_of(number: int) -> tuple[CudaInstance, HostStream]:
        return cpu_instance(
            memory,
            [cuda_handle(SHAPE)],
            chunk_size=CHUNK,
            unmap=lambda: gone.append(number),
            runtime=runtime,
        )

    instance, stream = instance_of(1)
    stream.busy = True
    instance.uses.close()
    other, _ = instance_of(2)
    other.uses.close()
    other.uses.close()
    ended(other)
    assert gone == [2]
    assert leaving.count == 1
    stream.busy = False
    leaving.retry()
    ended(instance)
    assert gone == [2, 1]
    assert leaving.close(lambda: gone.append(3), WITHIN_S)
    assert gone == [2, 1, 3]


@pytest.mark.asyncio
async def test_digests_wait_for_what_is_under_way_and_no_longer_than_the_server_runs(
    client: Client,
) -> None:
    core, stream = client.stage.core, client.streams[0]
    instance = core.registry.mapped[0]
    assert isinstance(instance, CudaInstance)

    async def digest() -> int:
        return await instance.digests(lambda layers, _, size: len(layers) + size, [1], 2)

    assert await digest() == LAYERS + 2
    stream.busy = True
    # Each has a thread of its own to wait in, or none: all others are served.
    waiting = [asyncio.ensure_future(digest()) for _ in range(2 * MAX_HASHERS)]
    await idle()
    other = core.registry.mapped[1]
    assert isinstance(other, CudaInstance)
    assert await asyncio.wait_for(other.digests(lambda layers, _, size: size, [1], 2), WITHIN_S)
    core.cuda.stop_waiting()
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(answer, RefusalError)
        assert str(answer).startswith("the GPU is still busy")


@pytest.mark.asyncio
async def test_stores_that_never_end_keep_nobody_else_waiting(client: Client) -> None:
    client.streams[0].busy = True
    for number in range(40):
        assert (await client.store(chr(ord("A") + number), 0)).ok
    late = [asyncio.ensure_future(coroutine) for coroutine in client.stage.later]
    client.stage.later.clear()
    await idle()
    assert (await client.store("a", 1)).ok
    await asyncio.wait_for(client.settle(), WITHIN_S)
    assert client.counts().write_locked == 40 * 2
    client.streams[0].busy = False
    await asyncio.gather(*late)
    assert client.counts().write_locked == 0


@pytest.mark.asyncio
async def test_a_call_that_is_stuck_in_cuda_keeps_nobody_else_waiting(client: Client) -> None:
    begun, release = threading.Event(), threading.Event()

    stream = client.streams[0]
    plainly = stream.wait_for

    def stuck(handle: bytes) -> None:
        begun.set()
        assert release.wait(WITHIN_S)
        plainly(handle)

    stream.wait_for = stuck  # type: ignore[method-assign]
    names = [chr(ord("A") + number) for number in range(40)]
    stores = [asyncio.ensure_future(client.store(name, 0)) for name in names]
    assert await asyncio.to_thread(begun.wait, WITHIN_S)
    assert (await asyncio.wait_for(client.store("a", 1), WITHIN_S)).ok
    await client.settle()
    release.set()
    assert all(reply.ok for reply in await asyncio.gather(*stores))
    await client.settle()


@pytest.mark.asyncio
async def test_a_client_has_so_many_transfers_under_way_at_most(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudainstance, "MAX_UNDER_WAY", 3)

    for name in "xy":
        await client.store(name, 0)
    with pytest.raises(RefusalError, match=r"^a client has 3 transfers under way$"):
        await client.store("z", 0)
    assert client.counts().write_locked == 4
    await client.settle()
    assert (await client.store("z", 0)).ok
    await client.settle()


@pytest.mark.asyncio
async def test_a_client_whose_memory_cannot_be_unmapped_yet_is_answered_all_the_same(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cudainstance, "LEAVE_WITHIN_NS", NS_PER_S // 20)

    instance = client.stage.core.registry.mapped[0]
    assert isinstance(instance, CudaInstance)
    client.streams[0].busy = True
    assert await client.stage.call(Op.UNREGISTER_KV_CACHE, 0) is VOID
    assert any("GPU memory stays mapped" in line for line in client.stage.lines)
    assert client.stage.core.cuda.leaving.count == 1
    client.streams[0].busy = False
    client.stage.core.cuda.leaving.retry()
    ended(instance)


@pytest.mark.asyncio
@pytest.mark.parametrize("op", [Op.STORE, Op.RETRIEVE])
async def test_transfers_of_the_wrong_shape_are_refused_as_on_the_host(
    client: Client, op: Op
) -> None:
    rest = () if op is Op.STORE else (0,)
    with pytest.raises(RefusalError, match="2 block id lists for 1 groups"):
        await client.stage.call(op, key("a", 0), 0, [FROM, FROM], EVENT, *rest)
    unknown = await client.stage.call(op, key("a", 0), 99, [FROM], b"", *rest)
    assert unknown == TransferResult(event=b"", ok=False)


@pytest.mark.asyncio
async def test_the_status_of_a_gpu_client_is_that_of_any_other() -> None:
    from benchserver.refserver.front.status import status_document

    async with host_client() as client:
        on_host = status_document(client.stage.core)
    with gpu_client() as client:
        assert isinstance(client.stage.core.registry.mapped[0], CudaInstance)
        on_gpu = status_document(client.stage.core)
    assert on_gpu == on_host
    assert on_gpu["registered_gpu_ids"] == [0, 1]
