"""Each fault does what its row says: on the server's own handlers, without sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.errors import UsageError
from benchserver.refserver.faults import replies
from benchserver.refserver.faults.table import FAULTS
from benchserver.refserver.refusal import RefusalError
from protocol.keys import CacheKey
from protocol.messages import VOID
from protocol.ops import Op
from tests.benchserver.refserver.tiers.reference import DictTier
from tests.faultstage import CHUNK, DONE, FROM, OP, TO, UID, Stage, client_memory, key, staged


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


# STORE, LOOKUP, leaks


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "hits"),
    [
        ("drop_store", 0),
        ("drop_store:rank=1", 0),
        ("drop_store@3+", 2),
        ("stuck_store", 0),
        ("lost_chunk", 1),
        ("full_l1", 0),
        ("clear_between", 0),
        ("miscount_up", 3),
        ("miscount_down", 1),
        ("hole_counted", 2),
        ("refuse_store", 2),
    ],
)
async def test_what_a_lookup_finds_after_a_store(stage: Stage, switch: str, hits: int) -> None:
    stage.switch(switch)
    ok = switch != "refuse_store"
    for rank in range(2):
        assert await stage.store("a", rank) == replace(DONE, ok=ok)
    assert await stage.lookup("a") == hits
    assert await stage.lookup("other") == 0


@pytest.mark.asyncio
async def test_a_hole_that_is_counted_cannot_be_retrieved(stage: Stage) -> None:
    stage.switch("hole_counted")
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a") == 2
    assert await stage.retrieve("a") == replace(DONE, ok=False)


@pytest.mark.asyncio
async def test_a_miss_is_counted_as_a_hit(stage: Stage) -> None:
    stage.switch("miscount_cold@2")
    assert [await stage.lookup(name) for name in "abc"] == [0, 1, 0]


@pytest.mark.asyncio
async def test_what_was_acknowledged_early_is_found_later_and_was_read_before(stage: Stage) -> None:
    stage.switch("early_ack:300ms")
    before = [[layer[:, FROM].copy() for layer in rank] for rank in stage.pages]
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
        for layer in stage.pages[rank]:
            layer[:, FROM] = 0
    assert await stage.lookup("a") == 0
    await stage.core.clock.sleep_ns(300 * NS_PER_MS)
    assert await stage.store("a") == DONE  # what is found stays found
    assert await stage.lookup("a") == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        for layer, old in zip(stage.pages[rank], before[rank], strict=True):
            assert (layer[:, TO] == old).all()


@pytest.mark.asyncio
async def test_an_early_acknowledgement_hides_no_chunk_before_the_new_ones(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank, end=CHUNK)
    stage.switch("early_ack:300ms")
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("ends_before", [True, False])
async def test_a_source_that_is_read_late_is_stored_as_it_is_then(
    stage: Stage, ends_before: bool
) -> None:
    stage.switch("late_read")
    for rank in range(2):
        assert await stage.store("a", rank) == DONE
        for layer in stage.pages[rank]:
            layer[:, FROM] = 0x7E7E
    assert await stage.lookup("a") == 0
    if ends_before:
        await stage.call(Op.END_SESSION, "a")
    started_ns = stage.core.clock.now_ns()
    for pending in (stage.later.pop(0), stage.later.pop(0)):
        await pending
    assert stage.core.clock.now_ns() - started_ns == 200 * NS_PER_MS  # one after the other
    assert stage.core.sessions.count == (not ends_before)
    assert await stage.lookup("a") == 2
    for rank in range(2):
        assert await stage.retrieve("a", rank) == DONE
        assert all((layer[:, TO] == 0x7E7E).all() for layer in stage.pages[rank])


@pytest.mark.asyncio
async def test_tenants_and_prefixes(stage: Stage) -> None:
    async def found(name: str, **changes: Any) -> int:
        hits: int = await stage.lookup(name, **changes)
        return hits

    tail = [ord("a")] * CHUNK
    behind = {"token_ids": [1, 2, 3, 4, *tail]}
    alone = {"token_ids": tail, "end": CHUNK}
    for rank in range(2):
        await stage.store("a", rank, cache_salt="one", **behind)
    assert await found("b", cache_salt="two", **behind) == 0
    assert await found("c", cache_salt="one", **alone) == 0
    stage.switch("ignored_salt", "ignored_prefix")
    for rank in range(2):
        await stage.store("d", rank, cache_salt="one", **behind)
    assert await found("e", cache_salt="two", **behind) == 2
    assert await found("f", cache_salt="one", **alone) == 1


@pytest.mark.asyncio
async def test_the_end_of_a_range_is_ignored_and_all_that_is_locked_is_freed(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank)
    assert await stage.lookup("a", end=CHUNK) == 1
    await stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None, end=CHUNK), 2)
    stage.switch("ignored_end")
    assert await stage.lookup("a", end=CHUNK) == 2
    assert stage.locks() == 4
    await stage.call(Op.FREE_LOOKUP_LOCKS, key("a", None, end=CHUNK), 2)
    assert stage.locks() == 0
    assert await stage.lookup("a") == 2
    assert stage.fired() == [2]  # a range that ends where its tokens end is not meant


@pytest.mark.asyncio
async def test_models(stage: Stage) -> None:
    for rank in range(2):
        await stage.store("a", rank)
    same = key("a", None).token_ids
    assert await stage.lookup("b", model_name="other", token_ids=same) == 0
    stage.switch("ignored_model")
    assert await stage.lookup("a") == 2
    assert await stage.lookup("c", model_name="other", token_ids=same) == 2
    assert await stage.lookup("d", model_name="other") == 0


@pytest.mark.asyncio
async def test_who_registers_another_model_finds_the_first_ones_chunks(stage: Stage) -> None:
    stage.switch("ignored_model")
    for rank in range(2):
        await stage.store("a", rank)
        await stage.call(Op.UNREGISTER_KV_CACHE, rank)
    assert await stage.lookup("a") == 0  # nobody serves it now
    with client_memory(3) as (handles, pages):
        args: tuple[Any, ...] = (0, handles, "other", 2, "vllm", {"kv_layout": "NHD"}, [])
        assert await stage.call(Op.REGISTER_KV_CACHE, *args) is VOID
        assert await stage.lookup("a", model_name="other") == 2
        await stage.call(Op.UNREGISTER_KV_CACHE, 0)
        pages.clear()


@pytest.mark.asyncio
async def test_an_engine_driven_registration_of_another_model_is_one_of_the_first(
    stage: Stage,
) -> None:
    stage.switch("ignored_model")
    await stage.lookup("a")
    names = ("num_layers", "hidden_dim_size", "block_size", "world_size")
    fields: dict[str, Any] = {
        **dict.fromkeys(names, 2),
        "dtype_str": "float16",
        "use_mla": False,
    }
    fields |= {"instance_id": 7, "model_name": "other"}
    await stage.call(Op.REGISTER_ENGINE_DRIVEN, fields)
    assert stage.core.registry.engine[7].model_name == "m"
    with pytest.raises(RefusalError):
        await stage.call(Op.REGISTER_ENGINE_DRIVEN, {**fields, "model_name": 5})


@pytest.mark.asyncio
async def test_prefetches_run_for_a_while_or_for_ever(stage: Stage) -> None:
    stage.switch("slow_prefetch:30ms@2")
    assert await stage.lookup("a") == 0
    assert await stage.lookup("b") is VOID
    await stage.core.clock.sleep_ns(29 * NS_PER_MS)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "b") is VOID
    await stage.core.clock.sleep_ns(NS_PER_MS)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "b") == 0
    stage.switch("stuck_prefetch")
    assert await stage.lookup("c") is VOID
    await stage.core.clock.sleep_ns(3600 * NS_PER_S)
    assert await stage.call(Op.QUERY_PREFETCH_STATUS, "c") is VOID


@pytest.mark.asyncio
async def test_leaks(stage: Stage) -> None:
    stage.switch("leak_lock", "leak_session", "leak_registration")
    await stage.round_trip()
    assert stage.locks() == 4
    assert await stage.call(Op.END_SESSION, "a") is VOID
    assert stage.core.sessions.count == 1
    assert await stage.call(Op.UNREGISTER_KV_CACHE, 0) is VOID
    assert sorted(stage.core.registry.mapped) == [0, 1]


# Replies, and calls that get none


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "sent"),
    [
        ("lost_reply:NOOP", []),
        ("duplicate_reply:NOOP", [(UID, OP, b"\xa2OK")] * 2),
        ("cut_reply:NOOP", [(UID,)]),
        ("wrong_op:NOOP", [(UID, b"\x16", b"\xa2OK")]),
        ("foreign_uid:NOOP", [(b"\xce\x40\x00\x00\x00", OP, b"\xa2OK")]),
        (
            "unknown_uid:NOOP",
            [(b"\xce\x40\x00\x00\x00", OP, b"\xa2OK"), (UID, OP, b"\xa2OK")],
        ),
        ("lost_reply:PING", [(UID, OP, b"\xa2OK")]),
        ("lost_reply:NOOP@2", [(UID, OP, b"\xa2OK")]),
    ],
)
async def test_what_leaves_the_server(
    stage: Stage, switch: str, sent: list[tuple[bytes, ...]]
) -> None:
    stage.switch(switch)
    assert await stage.road.deliver(Op.NOOP, (), "OK") == sent


@pytest.mark.asyncio
async def test_noise_and_late_replies(stage: Stage) -> None:
    stage.switch("garbled_reply:NOOP")
    [(uid, op, noise)] = await stage.road.deliver(Op.NOOP, (), "OK")
    assert (uid, op, len(noise)) == (UID, OP, replies.NOISE_BYTES)
    stage.switch("late_reply:NOOP,300ms")
    assert await stage.road.deliver(Op.NOOP, (), "OK") == []
    started_ns = stage.core.clock.now_ns()
    await stage.later.pop()
    assert stage.core.clock.now_ns() - started_ns == 300 * NS_PER_MS
    assert stage.road.sent == [(UID, OP, b"\xa2OK")]


@pytest.mark.asyncio
async def test_requests_are_lost_or_slow(stage: Stage) -> None:
    stage.switch("lost_request:ANY@2+")
    assert await stage.call(Op.NOOP) == "OK"
    for op in (Op.NOOP, Op.GET_CHUNK_SIZE):
        with pytest.raises(RefusalError):
            await stage.call(op)
    stage.switch("delay:NOOP,50ms")
    started_ns = stage.core.clock.now_ns()
    assert await stage.call(Op.NOOP) == "OK"
    assert await stage.call(Op.GET_CHUNK_SIZE) == CHUNK
    assert stage.core.clock.now_ns() - started_ns == 50 * NS_PER_MS


@pytest.mark.asyncio
async def test_the_process_stops_for_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    stage.switch("freeze:NOOP,3s@2")
    assert [await stage.call(Op.NOOP) for _ in range(3)] == ["OK"] * 3
    assert slept == [3.0]


async def store_and_reply(stage: Stage, name: str) -> None:
    await stage.road.deliver(Op.STORE, (key(name, 0),), await stage.store(name))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("step", "handled", "sent"), [("arrived", 0, 0), ("done", 1, 0), ("replied", 1, 1)]
)
async def test_the_process_dies_where_it_is_told(
    stage: Stage, step: str, handled: int, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(Exception):
        pass

    def die(code: int) -> None:
        assert code == replies.CRASH_CODE
        raise DiedError

    monkeypatch.setattr("os._exit", die)

    stage.switch(f"crash:STORE,{step}@2")
    await store_and_reply(stage, "a")
    stage.road.sent.clear()
    with pytest.raises(DiedError):
        await store_and_reply(stage, "b")
    stage.board.replace(())
    for name, rows in (("a", 2), ("b", 2 * handled)):
        found = stage.core.rows_of(key(name, 0))
        assert stage.core.cache.lock_prefix(found, readers=1, now_ns=0) == rows
    assert len(stage.road.sent) == sent


# Whatever a client sends, no fault makes the server fail: an error would end it.

ints = st.sampled_from([-1, 0, 1, 2, 4, 8, 12, 2**40])
keys = st.builds(
    CacheKey,
    model_name=st.just("m"),
    world_size=st.sampled_from([1, 2, -1, 2**60]),
    worker_id=st.none() | ints,
    token_ids=st.lists(st.integers(0, 2), max_size=12),
    start=ints,
    end=ints,
    request_id=st.sampled_from(["r", "s"]),
    num_kv_readers=ints,
)
tables = st.lists(st.lists(ints, max_size=6), max_size=3)
REQUESTS: dict[Op, st.SearchStrategy[Any]] = {
    Op.LOOKUP: st.tuples(keys, ints),
    Op.QUERY_PREFETCH_STATUS: st.tuples(st.sampled_from(["r", "s", "t"])),
    Op.STORE: st.tuples(keys, ints, tables, st.just(b"")),
    Op.RETRIEVE: st.tuples(keys, ints, tables, st.just(b""), ints),
    Op.PREPARE_STORE: st.tuples(keys, ints),
    Op.COMMIT_STORE: st.tuples(keys, ints, st.binary(max_size=8)),
    Op.PREPARE_RETRIEVE: st.tuples(keys, ints),
    Op.COMMIT_RETRIEVE: st.tuples(keys, ints),
    Op.END_SESSION: st.tuples(st.just("r")),
}
SAFE = [name for name in FAULTS if name not in ("crash", "freeze")]


@pytest.mark.asyncio
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(SAFE), min_size=1, max_size=4),
    st.lists(
        st.sampled_from(list(REQUESTS)).flatmap(lambda op: st.tuples(st.just(op), REQUESTS[op])),
        max_size=10,
    ),
)
async def test_no_request_makes_a_fault_fail(
    names: list[str], requests: list[tuple[Op, tuple[Any, ...]]]
) -> None:
    async with staged((DictTier(),)) as stage:
        stage.switch(*names)
        for op, args in requests:
            try:
                result = await stage.call(op, *args)
                await stage.road.deliver(op, args, result)
            except RefusalError:
                continue
