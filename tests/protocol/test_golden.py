"""Sessions of the real client with the real server of its release, recorded frame by frame.

The tests write each session down from the flags that the client was started with, and compare:
our frames with the client's, the decoded replies with what the server must have meant.  Only the
inline KV data is taken from the recording, where it lies as an opaque msgpack bin.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from protocol import codec
from protocol.dialect import Dialect
from protocol.dialects import V056, dialect_of
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.fields import PICKLED_HANDLES
from protocol.handles import CpuShmHandle
from protocol.keys import CacheKey
from protocol.messages import (
    VOID,
    Incoming,
    PoolInfo,
    Reply,
    RetrievePlan,
    Slot,
    StorePlan,
    TransferResult,
)
from protocol.ops import Op
from protocol.session import ClientSession

GOLDEN = Path(__file__).parent.parent / "golden"
REGISTER = Op.REGISTER_KV_CACHE
STUB = b"stub_ipc_handle"
DONE = TransferResult(event=STUB, ok=True)
INLINE = StorePlan(inline=True, slots=(), chunk_indices=())
SHM_POOL = PoolInfo(shm_name="lmcache_l1_pool_bstest", pool_bytes=1073741824)
NO_POOL = PoolInfo(shm_name="", pool_bytes=0)

Step = tuple[Op, tuple[Any, ...], Any]
"""An operation, what the client sent with it, and what the server answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One recorded message."""

    is_request: bool
    op: str
    frames: tuple[bytes, ...]


def recorded(name: str) -> list[Message]:
    messages = json.loads((GOLDEN / f"{name}.json").read_text())
    assert {message["conn"] for message in messages} == {0}
    return [
        Message(
            is_request=message["direction"] == "request",
            op=message["op"],
            frames=tuple(bytes.fromhex(frame) for frame in message["frames"]),
        )
        for message in messages
    ]


def key(seq: int, temperature: str, *, world_size: int, worker_id: int | None) -> CacheKey:
    return CacheKey(
        model_name="test-model",
        world_size=world_size,
        worker_id=worker_id,
        token_ids=[seq] + [9906] * 512,
        start=0,
        end=512,
        request_id=f"req-{seq}-{temperature}",
        cache_salt="",
        num_kv_readers=1,
    )


def lookup(seq: int, temperature: str, world_size: int, tp_size: int, hits: int) -> list[Step]:
    all_ranks = key(seq, temperature, world_size=world_size, worker_id=None)
    return [
        (Op.LOOKUP, (all_ranks, tp_size), VOID),
        (Op.QUERY_PREFETCH_STATUS, (f"req-{seq}-{temperature}",), hits),
    ]


def end(seq: int, temperature: str) -> Step:
    return (Op.END_SESSION, (f"req-{seq}-{temperature}",), VOID)


def classical(pid: int, number: int) -> CpuShmHandle:
    return CpuShmHandle(
        shm_name=f"/lmcache_kv_{pid}_{number}",
        nbytes=65536,
        dtype="float16",
        shape=(2, 64, 16, 2, 8),
        stride=(16384, 256, 16, 8, 1),
    )


def mla(pid: int, number: int) -> CpuShmHandle:
    return CpuShmHandle(
        shm_name=f"/lmcache_kv_{pid}_{number}",
        nbytes=32768,
        dtype="float16",
        shape=(64, 16, 16),
        stride=(256, 16, 1),
    )


def group(group_id: int, layers: list[int]) -> dict[str, Any]:
    return {
        "engine_group_id": group_id,
        "layer_indices": layers,
        "tokens_per_block": 16,
        "sw_size_tokens": -1,
        "extra_object_group_tag": 0,
        "recurrent_state": False,
    }


def lmcache_driven(
    seq: int,
    ranks: Sequence[list[CpuShmHandle]],
    groups: list[dict[str, Any]],
    *,
    shared_by_ranks: bool = False,
) -> Iterator[Step]:
    tp_size = len(ranks)
    world_size = 1 if shared_by_ranks else tp_size
    workers = [0] * tp_size if shared_by_ranks else list(range(tp_size))
    writers = workers[:1] if shared_by_ranks else workers
    block_ids = [list(range(32))] * len(groups)
    yield Op.GET_CHUNK_SIZE, (), 256
    for rank, handles in enumerate(ranks):
        hints = {"kv_layout": "NHD"}
        registration = (1000 + rank, handles, "test-model", world_size, "vllm", hints, groups)
        yield Op.REGISTER_KV_CACHE, registration, VOID
    yield from lookup(seq, "cold", world_size, tp_size, 0)
    for rank, worker in enumerate(writers):
        cold = key(seq, "cold", world_size=world_size, worker_id=worker)
        yield Op.STORE, (cold, 1000 + rank, block_ids, STUB), DONE
    yield end(seq, "cold")
    yield from lookup(seq, "warm", world_size, tp_size, 2)
    for rank, worker in enumerate(workers):
        warm = key(seq, "warm", world_size=world_size, worker_id=worker)
        yield Op.RETRIEVE, (warm, 1000 + rank, block_ids, STUB, 0), DONE
    yield end(seq, "warm")
    for rank in range(tp_size):
        yield Op.UNREGISTER_KV_CACHE, (1000 + rank,), VOID


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """How one rank's chunks travelled."""

    store: StorePlan
    sent: bytes
    retrieve: RetrievePlan


def registration_map(rank: int, tp_size: int, layers: int, hidden: int, mla: bool) -> Any:
    return {
        "instance_id": 1000 + rank,
        "model_name": "test-model",
        "world_size": tp_size,
        "block_size": 16,
        "num_layers": layers,
        "hidden_dim_size": hidden,
        "dtype_str": "float16",
        "use_mla": mla,
        "num_physical_slots": 256,
    }


def engine_driven(
    seq: int, plans: Sequence[RankPlan], pool: PoolInfo, *, layers: int, hidden: int, mla: bool
) -> Iterator[Step]:
    tp_size = len(plans)
    yield Op.GET_CHUNK_SIZE, (), 256
    for rank in range(tp_size):
        sent = registration_map(rank, tp_size, layers, hidden, mla)
        yield Op.REGISTER_ENGINE_DRIVEN, (sent,), pool
    yield from lookup(seq, "cold", tp_size, tp_size, 0)
    for rank, plan in enumerate(plans):
        cold = key(seq, "cold", world_size=tp_size, worker_id=rank)
        yield Op.PREPARE_STORE, (cold, 1000 + rank), plan.store
        yield Op.COMMIT_STORE, (cold, 1000 + rank, plan.sent), True
    yield end(seq, "cold")
    yield from lookup(seq, "warm", tp_size, tp_size, 2)
    for rank, plan in enumerate(plans):
        warm = key(seq, "warm", world_size=tp_size, worker_id=rank)
        yield Op.PREPARE_RETRIEVE, (warm, 1000 + rank), plan.retrieve
        yield Op.COMMIT_RETRIEVE, (warm, 1000 + rank), True
    yield end(seq, "warm")
    for rank in range(tp_size):
        yield Op.UNREGISTER_ENGINE_DRIVEN, (1000 + rank,), VOID


def in_pool(offset: int, length: int, shape: tuple[int, ...]) -> RankPlan:
    slots = tuple(
        Slot(offset=at, length=length, shape=shape, dtype="float16")
        for at in (offset, offset + length)
    )
    return RankPlan(
        store=StorePlan(inline=False, slots=slots, chunk_indices=(0, 1)),
        sent=b"",
        retrieve=RetrievePlan(success=True, data=b"", slots=slots),
    )


def inline(name: str) -> list[RankPlan]:
    messages = recorded(name)
    commits = [m.frames[4] for m in messages if m.is_request and m.op == "commit_store"]
    prepares = [m.frames[2] for m in messages if not m.is_request and m.op == "prepare_retrieve"]
    plans = []
    for commit, prepare in zip(commits, prepares, strict=True):
        # A bin of 8913 bytes, and {"success": true, "data": a bin of 8917 bytes, "context": {}}.
        head, tail = b"\x83\xa7success\xc3\xa4data\xc5\x22\xd5", b"\xa7context\x80"
        assert commit.startswith(b"\xc5\x22\xd1")
        assert prepare.startswith(head)
        assert prepare.endswith(tail)
        data = prepare[len(head) : -len(tail)]
        retrieve = RetrievePlan(success=True, data=data, slots=())
        plans.append(RankPlan(store=INLINE, sent=commit[3:], retrieve=retrieve))
    return plans


ONE_GROUP = [group(0, [0, 1])]
PICKLE, PICKLE_TP2 = "v056_engine_driven_pickle_single_group", "v056_engine_driven_pickle_tp2"
TWO_CHUNKS = (2, 2, 256, 16)
SESSIONS: dict[str, list[Step]] = {
    "v056_lmcache_driven_single_group": list(
        lmcache_driven(0, [[classical(26391, 0), classical(26391, 1)]], ONE_GROUP)
    ),
    "v056_lmcache_driven_two_group_mla_classical": list(
        lmcache_driven(2, [[mla(26508, 0), classical(26508, 1)]], [group(0, [0]), group(1, [1])])
    ),
    "v056_lmcache_driven_tp2": list(
        lmcache_driven(
            3,
            [
                [classical(26525, 0), classical(26525, 1)],
                [classical(26525, 2), classical(26525, 3)],
            ],
            ONE_GROUP,
        )
    ),
    "v056_lmcache_driven_tp2_mla": list(
        lmcache_driven(
            5,
            [[mla(26558, 0), mla(26558, 1)], [mla(26558, 2), mla(26558, 3)]],
            ONE_GROUP,
            shared_by_ranks=True,
        )
    ),
    "v056_engine_driven_shm_single_group": list(
        engine_driven(1, [in_pool(0, 32768, TWO_CHUNKS)], SHM_POOL, layers=2, hidden=16, mla=False)
    ),
    "v056_engine_driven_shm_tp2": list(
        engine_driven(
            4,
            [in_pool(65536, 32768, TWO_CHUNKS), in_pool(131072, 32768, TWO_CHUNKS)],
            SHM_POOL,
            layers=2,
            hidden=16,
            mla=False,
        )
    ),
    "v056_engine_driven_shm_mla": list(
        engine_driven(
            6, [in_pool(196608, 16384, (2, 256, 16))], SHM_POOL, layers=2, hidden=16, mla=True
        )
    ),
    PICKLE: list(engine_driven(101, inline(PICKLE), NO_POOL, layers=1, hidden=4, mla=False)),
    PICKLE_TP2: list(
        engine_driven(104, inline(PICKLE_TP2), NO_POOL, layers=1, hidden=4, mla=False)
    ),
}
each_session = pytest.mark.parametrize("name", SESSIONS)


def test_every_recording_of_056_has_its_session() -> None:
    assert {path.stem for path in GOLDEN.glob("v056_*.json")} == set(SESSIONS)


@each_session
def test_our_client_sends_and_understands_what_was_recorded(name: str) -> None:
    session = ClientSession(V056)
    steps = iter(SESSIONS[name])
    for now_ns, message in enumerate(recorded(name)):
        if message.is_request:
            op, args, result = next(steps)
            sent = session.request(op, args, now_ns=now_ns)
            assert (op.value, sent.frames) == (message.op, message.frames)
        else:
            event = session.receive(message.frames, now_ns=now_ns)
            assert event == Reply(uid=sent.uid, op=op, result=result, latency_ns=1)
            assert type(event.result) is type(result)
    assert next(steps, None) is None
    assert session.pending_count == 0


@each_session
def test_our_server_understands_and_sends_what_was_recorded(name: str) -> None:
    steps = iter(SESSIONS[name])
    for message in recorded(name):
        if message.is_request:
            op, args, result = next(steps)
            incoming = codec.decode_request(V056, message.frames)
            assert (incoming.op, incoming.args) == (op, args)
            assert (incoming.uid, incoming.op_frame) == message.frames[:2]
        else:
            assert codec.encode_reply(V056, incoming, result) == message.frames


@each_session
def test_a_decoded_request_is_encoded_to_the_same_bytes(name: str) -> None:
    requests = [message for message in recorded(name) if message.is_request]
    for uid, message in enumerate(requests):
        incoming = codec.decode_request(V056, message.frames)
        assert codec.encode_request(V056, uid, incoming.op, incoming.args) == message.frames


INDEX: dict[str, dict[str, Any]] = json.loads((GOLDEN / "INDEX.json").read_text())["files"]
RELEASES = {name.removesuffix(".json"): entry["release"] for name, entry in INDEX.items()}
OTHERS = {name: release for name, release in RELEASES.items() if release != "0.5.6"}
"""Recordings of other releases: `scripts/record_golden` adds to them."""

RENAMED = {
    "register_kv_cache_non_gpu_context": Op.REGISTER_ENGINE_DRIVEN.value,
    "unregister_kv_cache_non_gpu_context": Op.UNREGISTER_ENGINE_DRIVEN.value,
}
each_other = pytest.mark.parametrize(("name", "release"), OTHERS.items())
each_mapped = pytest.mark.parametrize(
    ("name", "release"),
    [(n, r) for n, r in OTHERS.items() if "register_kv_cache" in INDEX[f"{n}.json"]["request_ops"]],
)


def row_of(name: str, release: str) -> Dialect:
    try:
        return dialect_of(release)
    except LocalProtocolError as error:
        pytest.fail(f"{name}.json has no row in protocol/dialects.py: {error}")


def test_every_recording_is_in_the_index_under_its_release() -> None:
    assert {path.stem for path in GOLDEN.glob("v*.json")} == set(RELEASES)
    for name, release in RELEASES.items():
        assert name.startswith(f"v{release.replace('.', '')}_")


def test_a_recording_of_a_release_without_a_row_says_so() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"v999_x\.json has no row .*9\.9\.9.* is not"):
        row_of("v999_x", "9.9.9")


@pytest.mark.parametrize("name", RELEASES)
def test_the_index_describes_the_recording(name: str) -> None:
    entry, messages = INDEX[f"{name}.json"], recorded(name)
    assert entry["messages"] == len(messages)
    assert entry["request_ops"] == [message.op for message in messages if message.is_request]
    assert entry["bytes"] == (GOLDEN / f"{name}.json").stat().st_size


@each_other
def test_a_request_of_another_release_is_encoded_to_the_same_bytes(name: str, release: str) -> None:
    dialect = row_of(name, release)
    requests = [message for message in recorded(name) if message.is_request]
    for uid, message in enumerate(requests):
        incoming = codec.decode_request(dialect, message.frames)
        assert incoming.op.value == RENAMED.get(message.op, message.op)
        assert codec.encode_request(dialect, uid, incoming.op, incoming.args) == message.frames


@each_other
def test_a_reply_of_another_release_is_understood_and_encoded(name: str, release: str) -> None:
    dialect = row_of(name, release)
    waiting: dict[bytes, Incoming] = {}
    for message in recorded(name):
        if message.is_request:
            incoming = codec.decode_request(dialect, message.frames)
            waiting[incoming.uid] = incoming
        else:
            incoming = waiting.pop(message.frames[0])
            row = dialect.ops[incoming.op]
            result = codec.decode_result(row, incoming.op, message.frames)
            assert codec.encode_reply(dialect, incoming, result) == message.frames
    assert not waiting


@each_other
def test_a_session_of_another_release_found_what_it_stored(name: str, release: str) -> None:
    """Else the recording shows less than it seems to."""
    dialect = row_of(name, release)
    waiting: dict[bytes, Incoming] = {}
    results: dict[Op, list[Any]] = {}
    for message in recorded(name):
        if message.is_request:
            incoming = codec.decode_request(dialect, message.frames)
            waiting[incoming.uid] = incoming
        else:
            op = waiting.pop(message.frames[0]).op
            result = codec.decode_result(dialect.ops[op], op, message.frames)
            results.setdefault(op, []).append(result)
    hits = [found for found in results[Op.QUERY_PREFETCH_STATUS] if found is not VOID]
    assert (hits[0], hits[-1]) == (0, 2)
    if Op.REGISTER_KV_CACHE in results:
        assert results[Op.STORE] == results[Op.RETRIEVE] == [DONE]
        return
    (plan,) = results[Op.PREPARE_RETRIEVE]
    assert plan.success
    assert results[Op.COMMIT_STORE] == [True]
    if not results[Op.REGISTER_ENGINE_DRIVEN][0].shm_name:
        sent = codec.decode_request(dialect, commit_of(name)).args[-1]
        assert dialect.inline.decode(plan.data) == dialect.inline.decode(sent)


def commit_of(name: str) -> tuple[bytes, ...]:
    (frames,) = [m.frames for m in recorded(name) if m.is_request and m.op == "commit_store"]
    return frames


@each_mapped
def test_a_registration_is_described_by_its_handles(name: str, release: str) -> None:
    registration = recorded(name)[2]
    assert registration.op == "register_kv_cache"
    incoming = codec.decode_request(row_of(name, release), registration.frames)
    first, second = incoming.args[1]
    for handle in (first, second):
        assert handle.shm_name.startswith("/lmcache_kv_")
        assert handle == replace(classical(0, 0), shm_name=handle.shm_name)
    assert first.shm_name != second.shm_name


@each_mapped
def test_a_pickled_registration_is_refused_unread_by_056(name: str, release: str) -> None:
    registration = recorded(name)[2]
    if PICKLED_HANDLES not in {f.kind for f in row_of(name, release).ops[REGISTER].payload}:
        assert codec.decode_request(V056, registration.frames).op is REGISTER
        return
    with pytest.raises(RemoteProtocolError, match=r"kv_cache: handle: not msgpack \(ExtraData\)$"):
        codec.decode_request(V056, registration.frames)
