"""The verbs of one request: what records say of good, bad and missing answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchserver.client.lookups import OpenRequest
from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.history import Outcome
from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.pattern import chunk_digests
from benchserver.kv.verify import verify, verify_canaries
from benchserver.scenarios import requests
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.messages import VOID, TransferResult
from protocol.ops import Op
from tests.benchserver.scenarios.conftest import MakeStage
from tests.benchserver.scenarios.honest import CHUNK_TOKENS, Played

TOKENS = tuple(range(2 * CHUNK_TOKENS))


def opened(played: Played, name: str = "r", *, end: int = len(TOKENS)) -> OpenRequest:
    return played.stage.crews[0].desk.open(TOKENS, end=end, request_id=name)


def window(played: Played, rank: int = 0) -> Any:
    stage = played.stage
    return stage.crews[0].engine.block_plan(stage.crews[0].geometry, turn=0, rank=rank)


async def stored(played: Played, name: str = "r") -> OpenRequest:
    """Store everything, look it up, and return the request that hit it."""
    stage, first = played.stage, opened(played, "first")
    for worker in stage.crews[0].workers:
        await requests.store(
            stage, stage.crews[0], first, worker, window(played, worker.rank).source
        )
    request = opened(played, name)
    await requests.look_up(stage, stage.crews[0], request, "warm", expected=2, total=2)
    return request


@pytest.mark.asyncio
async def test_a_lookup_says_what_was_hit_and_when(make_stage: MakeStage) -> None:
    played = make_stage()
    found = await requests.look_up(
        played.stage, played.stage.crews[0], opened(played), "cold", expected=0, total=2
    )
    assert (found.which, found.outcome, found.hits, found.expected, found.total) == (
        "cold",
        Outcome.OK,
        0,
        0,
        2,
    )
    assert (found.began_ns, found.ended_ns, found.reason) == (0, 2 * NS_PER_MS, "")
    request = await stored(played, "again")
    assert request.locked_ranks == [0]
    found = await requests.look_up(
        played.stage, played.stage.crews[0], request, "warm", expected=2, total=2
    )
    assert found.hits == 2
    assert found.ended_ns == played.clock.now_ns()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Op.LOOKUP, "no answer within 1 s"),
        (Op.QUERY_PREFETCH_STATUS, "QUERY_PREFETCH_STATUS: no answer within 1 s"),
    ],
)
async def test_a_lookup_without_an_answer_names_the_call_that_is_another(
    make_stage: MakeStage, op: Op, reason: str
) -> None:
    played = make_stage()
    played.server.answers[op] = None
    found = await requests.look_up(
        played.stage, played.stage.crews[0], opened(played), "cold", expected=0, total=2
    )
    assert (found.outcome, found.hits, found.reason) == (Outcome.UNKNOWN, 0, reason)
    assert found.ended_ns == played.clock.now_ns() >= NS_PER_S


@pytest.mark.asyncio
async def test_a_store_says_how_much_was_moved(make_stage: MakeStage) -> None:
    played = make_stage(tp_size=2)
    stage, request = played.stage, opened(played)
    record = await requests.store(
        stage, stage.crews[0], request, stage.crews[0].workers[1], window(played, 1).source
    )
    assert (record.name, record.rank, record.outcome) == ("STORE", 1, Outcome.OK)
    assert (record.chunks, record.total) == (2, 2)
    assert record.nbytes == stage.crews[0].geometry.nbytes
    assert (record.began_ns, record.replied_ns, record.ended_ns) == (0, NS_PER_MS, NS_PER_MS)
    assert len(played.server.stored) == 2


@pytest.mark.asyncio
async def test_a_shorter_request_counts_its_own_chunks(make_stage: MakeStage) -> None:
    played = make_stage()
    stage, request = played.stage, opened(played, end=CHUNK_TOKENS)
    blocks = window(played).source.block_ids[: stage.crews[0].geometry.blocks_per_chunk]
    source = type(window(played).source)(first=1, count=2, block_ids=blocks, canaries=())
    record = await requests.store(stage, stage.crews[0], request, stage.crews[0].workers[0], source)
    assert (record.chunks, record.total) == (1, 1)
    assert record.nbytes == stage.crews[0].geometry.chunk_bytes


@pytest.mark.asyncio
async def test_a_retrieve_gives_its_lock_back(make_stage: MakeStage) -> None:
    played = make_stage(tp_size=2)
    stage, request = played.stage, await stored(played)
    assert request.locked_ranks == [0, 1]
    target = window(played, 1).destination
    record = await requests.retrieve(
        stage, stage.crews[0], request, stage.crews[0].workers[1], target
    )
    assert (record.name, record.outcome, record.skip_tokens) == ("RETRIEVE", Outcome.OK, 0)
    assert request.locked_ranks == [0]
    ends = await requests.settle(stage.crews[0], request)
    assert [(end.name, end.outcome) for end in ends] == [
        ("FREE_LOOKUP_LOCKS", Outcome.OK),
        ("END_SESSION", Outcome.OK),
    ]
    assert ends[0].began_ns < ends[0].ended_ns == ends[1].began_ns < ends[1].ended_ns


@pytest.mark.asyncio
async def test_a_retrieve_in_part_counts_the_blocks_behind_what_it_skips(
    make_stage: MakeStage,
) -> None:
    played = make_stage()
    stage, request = played.stage, await stored(played)
    target, worker = window(played).destination, stage.crews[0].workers[0]
    record = await requests.retrieve(stage, stage.crews[0], request, worker, target, skip_tokens=20)
    # One whole block of four is skipped, and a part of the next, which is written.
    assert (record.skip_tokens, record.nbytes) == (20, stage.crews[0].geometry.nbytes * 3 // 4)
    assert played.connection.calls[-1][-1] == 20


@pytest.mark.asyncio
async def test_a_refused_transfer_failed_and_one_without_an_answer_is_unknown(
    make_stage: MakeStage,
) -> None:
    played = make_stage(spec="(2,64,16,1,8):float8_e5m2:2")
    stage, request, source = played.stage, opened(played), window(played).source
    worker = stage.crews[0].workers[0]
    played.server.answers[Op.STORE] = lambda *_: TransferResult(event=b"", ok=False)
    refused = await requests.store(stage, stage.crews[0], request, worker, source)
    assert (refused.outcome, refused.chunks, refused.nbytes) == (Outcome.FAIL, 0, 0)
    assert refused.reason.startswith("STORE answered False; engines give fp8 KV as uint8")
    assert refused.replied_ns == refused.ended_ns == NS_PER_MS
    played.server.answers[Op.STORE] = None
    lost = await requests.store(stage, stage.crews[0], request, worker, source)
    assert (lost.outcome, lost.latency_ns) == (Outcome.UNKNOWN, NS_PER_S)
    assert lost.reason.startswith("no answer within 1 s; engines give fp8")


@pytest.mark.asyncio
async def test_what_broke_the_protocol_in_a_transfer_failed(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = make_stage()
    stage, worker = played.stage, played.stage.crews[0].workers[0]

    async def breaks(*_: Any) -> Any:
        raise RemoteProtocolError("slot at 7\nhas 3 bytes")

    monkeypatch.setattr(worker.mode, "store", breaks)
    record = await requests.store(
        stage, stage.crews[0], opened(played), worker, window(played).source
    )
    assert (record.outcome, record.reason) == (Outcome.FAIL, "slot at 7 has 3 bytes")


@pytest.mark.asyncio
async def test_what_we_cannot_send_is_not_held_against_the_server(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = make_stage()
    stage, crew = played.stage, played.stage.crews[0]

    async def cannot(*_: Any) -> Any:
        raise LocalProtocolError("1024 requests are waiting")

    monkeypatch.setattr(crew.workers[0].mode, "store", cannot)
    monkeypatch.setattr(crew.desk, "lookup", cannot)
    stored = await requests.store(
        stage, crew, opened(played), crew.workers[0], window(played).source
    )
    looked = await requests.look_up(stage, crew, opened(played), "cold", expected=0, total=2)
    said = "not sent by bench-server: 1024 requests are waiting"
    assert (stored.outcome, stored.reason) == (Outcome.UNKNOWN, said)
    assert (looked.outcome, looked.reason) == (Outcome.UNKNOWN, said)


@pytest.mark.asyncio
async def test_a_transfer_goes_to_its_end_when_its_caller_is_cancelled(
    make_stage: MakeStage,
) -> None:
    played = make_stage()
    stage, request = played.stage, await stored(played)
    retrieving, honest = asyncio.Event(), played.server.retrieve

    def tell(*args: Any) -> object:
        retrieving.set()
        return honest(*args)

    played.server.answers[Op.RETRIEVE] = tell
    target, worker = window(played).destination, stage.crews[0].workers[0]
    one = asyncio.ensure_future(requests.retrieve(stage, stage.crews[0], request, worker, target))
    await retrieving.wait()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert request.locked_ranks == [0]
    await stage.finishing.wait()
    # What was under way is done, and the lock is known to be given back.
    assert request.locked_ranks == []


@pytest.mark.asyncio
async def test_settling_says_what_failed(make_stage: MakeStage) -> None:
    played = make_stage()
    played.server.answers[Op.END_SESSION] = None
    (end,) = await requests.settle(played.stage.crews[0], opened(played))
    assert (end.name, end.outcome, end.reason) == (
        "END_SESSION",
        Outcome.UNKNOWN,
        "no answer within 1 s",
    )
    played.server.answers[Op.END_SESSION] = lambda *_: VOID
    assert played.stage.crews[0].desk.open_requests == {}


@pytest.mark.asyncio
async def test_what_hit_is_read_and_only_the_rest_is_stored(make_stage: MakeStage) -> None:
    played = make_stage(num_tokens=4 * CHUNK_TOKENS)
    stage, (crew,) = played.stage, played.stage.crews
    worker, plan = crew.workers[0], window(played)
    tokens, hit = tuple(range(4 * CHUNK_TOKENS)), 2 * CHUNK_TOKENS
    digests = chunk_digests(crew.content_root, tokens, CHUNK_TOKENS)
    per_chunk = crew.geometry.blocks_per_chunk

    first = crew.desk.open(tokens[:hit], end=hit, request_id="first")
    worker.pool.fill(half := plan.source.packed(2 * per_chunk), digests[:2])
    await requests.store(stage, crew, first, worker, half)

    request = crew.desk.open(tokens, end=len(tokens), request_id="second")
    found = await requests.look_up(stage, crew, request, "cold", expected=2, total=4)
    assert (found.hits, request.locked_end, request.locked_ranks) == (2, hit, [0])
    target = plan.destination.first_blocks(2 * per_chunk)
    worker.pool.poison(target)
    read = await requests.retrieve(stage, crew, request, worker, plan.destination, end=hit)
    assert (read.chunks, read.total, read.nbytes) == (2, 2, crew.geometry.nbytes // 2)
    assert request.locked_ranks == []
    assert verify(worker.pool, target, digests[:2], ()).kind is EvidenceKind.MATCH
    # The blocks of the chunks that did not hit count as canaries: nobody wrote them.
    assert verify_canaries(worker.pool, target).kind is EvidenceKind.MATCH

    rest = plan.source.packed(2 * per_chunk)
    worker.pool.fill(rest, digests[2:])
    wrote = await requests.store(stage, crew, request, worker, rest, start=hit)
    assert (wrote.chunks, wrote.total, wrote.nbytes) == (2, 2, crew.geometry.nbytes // 2)
    assert [end.name for end in await requests.settle(crew, request)] == ["END_SESSION"]
    assert len(played.server.stored) == 4

    third = crew.desk.open(tokens, end=len(tokens), request_id="third")
    assert (await requests.look_up(stage, crew, third, "warm", expected=4, total=4)).hits == 4
    worker.pool.poison(plan.destination)
    await requests.retrieve(stage, crew, third, worker, plan.destination)
    assert verify(worker.pool, plan.destination, digests, ()).kind is EvidenceKind.MATCH


@pytest.mark.parametrize(
    ("start", "end"), [(-32, 32), (32, 32), (32, 0), (0, 96), (1, 64), (0, 63), (0, 0)]
)
@pytest.mark.asyncio
async def test_a_range_that_is_no_whole_chunks_of_the_request_is_refused(
    make_stage: MakeStage, start: int, end: int
) -> None:
    played = make_stage()
    stage, (crew,) = played.stage, played.stage.crews
    request, source = opened(played), window(played).source
    with pytest.raises(ValueError, match=rf"\[{start}, {end}\) of 64 are no whole chunks of 32"):
        await requests.store(stage, crew, request, crew.workers[0], source, start=start, end=end)
    assert played.connection.calls == []


@pytest.mark.asyncio
async def test_a_rank_reads_all_that_is_locked_for_it(make_stage: MakeStage) -> None:
    played = make_stage()
    stage, (crew,) = played.stage, played.stage.crews
    request, target = await stored(played), window(played).destination
    with pytest.raises(ValueError, match="RETRIEVE of 32 tokens, but 64 are locked"):
        await requests.retrieve(stage, crew, request, crew.workers[0], target, end=32)
    assert request.locked_ranks == [0]
