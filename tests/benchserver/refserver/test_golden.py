"""Recorded sessions of real clients, sent to our server: it answers as the real ones did.

The requests go out frame by frame as they were recorded, in that order, over one DEALER; only the
names of the client's shared-memory segments are replaced by fresh ones.  Every reply must have the
recorded bytes, apart from what VOLATILE and RACES list.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from benchserver.refserver.store.segments import create_segment, unlink_segment
from protocol import codec
from protocol.dialect import Dialect
from protocol.dialects import V056, dialect_of
from protocol.ops import Op
from tests.mitm.forkedserver import forked_server

GOLDEN = Path(__file__).parents[2] / "golden"
REPLY_WITHIN_MS = 10_000

PLAIN = (
    "v056_engine_driven_pickle_single_group",
    "v056_engine_driven_pickle_tp2",
    "v056_lmcache_driven_single_group",
    "v056_lmcache_driven_tp2",
    "v056_lmcache_driven_tp2_mla",
    "v056_lmcache_driven_two_group_mla_classical",
)
POOLED = (
    "v056_engine_driven_shm_single_group",
    "v056_engine_driven_shm_tp2",
    "v056_engine_driven_shm_mla",
)
"""Recorded with one server, in this order; so are the slots' offsets in its pool."""

INDEX: Mapping[str, Mapping[str, Any]] = json.loads(
    (GOLDEN / "INDEX.json").read_text(encoding="utf-8")
)["files"]
RELEASES = {name.removesuffix(".json"): entry["release"] for name, entry in INDEX.items()}
OTHERS = {name: release for name, release in RELEASES.items() if release != "0.5.6"}
"""Recordings of other releases, each with a server of its own."""

_POOL = frozenset({"shm_name", "pool_size"})

VOLATILE: Mapping[tuple[str, str], frozenset[str]] = {
    ("shm", "register_kv_cache_engine_driven_context"): _POOL,
    ("shm", "register_kv_cache_non_gpu_context"): _POOL,
    ("inline", "prepare_retrieve"): frozenset({"data"}),
}
"""Fields of a reply's map that another server, or another run of the same one, has otherwise: how
its pool is named and how large it is; how tensors are spelled inline (`data` must hold equal ones).
Where there is no pool, its name and size are not volatile."""

RACES: Mapping[tuple[str, int], Any] = {
    ("v056_lmcache_driven_tp2_mla", 10): [b"stub_ipc_handle", False],
}
"""Replies, by recording and uid, that depended on a race when they were recorded, and ours: two
ranks RETRIEVE under one read lock, and 0.5.6 takes that lock back some time after its reply, so
that rank 1 was in time.  Ours takes it back before the reply."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and its reply."""

    op: str
    request: tuple[bytes, ...]
    reply: tuple[bytes, ...]


def recorded(name: str) -> list[Exchange]:
    messages = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    requests, replies = messages[::2], messages[1::2]
    assert [m["direction"] for m in messages] == ["request", "response"] * len(requests)
    assert {m["conn"] for m in messages} == {0}
    return [
        Exchange(sent["op"], _frames(sent), _frames(got))
        for sent, got in zip(requests, replies, strict=True)
    ]


def _frames(message: Mapping[str, Any]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(frame) for frame in message["frames"])


def renamed(frame: bytes) -> bytes:
    """Give every segment a name of this process, as long as the recorded one."""

    def fresh(found: re.Match[bytes]) -> bytes:
        return b"/bsg" + str(os.getpid()).zfill(len(found[0]) - 4).encode()

    return re.sub(rb"/lmcache_kv_[0-9]+", fresh, frame)


@contextmanager
def segments_of(dialect: Dialect, request: Sequence[bytes]) -> Iterator[None]:
    """Create the shared-memory segments that a REGISTER_KV_CACHE names, full of noise."""
    incoming = codec.decode_request(dialect, request)
    assert incoming.op is Op.REGISTER_KV_CACHE
    with ExitStack() as cleanup:
        for handle in incoming.args[1]:
            name = handle.shm_name.removeprefix("/")
            descriptor = create_segment(name)
            cleanup.callback(unlink_segment, name)
            cleanup.callback(os.close, descriptor)
            os.truncate(descriptor, handle.nbytes)
            with mmap.mmap(descriptor, handle.nbytes) as memory:
                memory[:] = random.Random(name).randbytes(handle.nbytes)
        yield


class Replayer:
    """Sends recorded requests over one DEALER."""

    def __init__(self, dialect: Dialect, socket: zmq.Socket[bytes], cleanup: ExitStack) -> None:
        self._dialect = dialect
        self._socket = socket
        self._cleanup = cleanup

    def answer(self, exchange: Exchange) -> tuple[bytes, ...]:
        """Return our server's reply."""
        request = exchange.request
        if exchange.op == "register_kv_cache":
            request = tuple(renamed(frame) for frame in request)
            self._cleanup.enter_context(segments_of(self._dialect, request))
        self._socket.send_multipart(request)
        assert self._socket.poll(REPLY_WITHIN_MS), f"no reply to {exchange.op}"
        return tuple(self._socket.recv_multipart())


def kind_of(name: str) -> str:
    """Return how the KV data of a recorded session travelled."""
    if "register_kv_cache" in INDEX[f"{name}.json"]["request_ops"]:
        return "mapped"
    return "shm" if "_shm_" in name else "inline"


def check_reply(name: str, exchange: Exchange, ours: tuple[bytes, ...]) -> None:
    kind = kind_of(name)
    volatile = VOLATILE.get((kind, exchange.op), frozenset())
    want = exchange.reply
    race = RACES.get((name, msgpack.unpackb(exchange.request[0])))
    if race is not None:
        want = (*want[:2], msgpack.packb(race))
    assert ours[:2] == want[:2]
    assert len(ours) == len(want)
    if not volatile:
        assert ours == want
        return
    got, expected = msgpack.unpackb(ours[2]), msgpack.unpackb(want[2])
    assert {field: type(got[field]) for field in volatile} == {
        field: type(expected[field]) for field in volatile
    }
    if "data" in volatile:
        decode = dialect_of(RELEASES[name]).inline.decode
        assert decode(got["data"]) == decode(expected["data"])
    # With the recorded values in the volatile fields, the frame has the recorded bytes.
    assert msgpack.packb({**got, **{field: expected[field] for field in volatile}}) == want[2]
    assert msgpack.packb(got) == ours[2]


def replay(rpc_url: str, name: str) -> None:
    with ExitStack() as cleanup, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(rpc_url)
        replayer = Replayer(dialect_of(RELEASES[name]), socket, cleanup)
        for exchange in recorded(name):
            check_reply(name, exchange, replayer.answer(exchange))
        assert not socket.poll(0), "one reply too many"


@pytest.fixture(scope="module")
def plain_server() -> Iterator[str]:
    """A server without a pool: engine-driven chunks travel inline."""
    with forked_server() as server:
        yield server.urls.rpc_url


def test_every_recording_of_056_is_replayed() -> None:
    assert {path.stem for path in GOLDEN.glob("v056_*.json")} == {*PLAIN, *POOLED}


@pytest.mark.parametrize("name", PLAIN)
def test_it_answers_as_recorded(plain_server: str, name: str) -> None:
    replay(plain_server, name)


def test_it_answers_as_recorded_over_its_pool() -> None:
    with forked_server("--shm-name", f"bsg{os.getpid()}") as server:
        for name in POOLED:
            replay(server.urls.rpc_url, name)


@pytest.mark.parametrize(("name", "release"), OTHERS.items())
def test_it_answers_as_another_release_did(name: str, release: str) -> None:
    pool = ("--shm-name", f"bsg{os.getpid()}") if kind_of(name) == "shm" else ()
    with forked_server("--as", release, *pool) as server:
        replay(server.urls.rpc_url, name)


def test_a_reply_that_differs_is_noticed() -> None:
    """Another result, another field, other types, orders and tensors, a frame too many."""
    exchanges = {
        (name, exchange.op): exchange for name in (*PLAIN, *POOLED) for exchange in recorded(name)
    }
    inline, pooled = PLAIN[0], POOLED[0]
    plan = msgpack.unpackb(exchanges[inline, "prepare_retrieve"].reply[2])
    chunk = bytes(V056.inline.decode(plan["data"])[0].data)
    other = plan["data"].replace(chunk, bytes([chunk[0] ^ 1]) + chunk[1:], 1)
    slots = msgpack.unpackb(exchanges[pooled, "prepare_store"].reply[2])
    slots["context"]["slots"][0]["offset"] += 1
    bad: list[tuple[str, str, Any]] = [
        (inline, "get_chunk_size", 255),
        (inline, "register_kv_cache_engine_driven_context", {"shm_name": "x", "pool_size": 0}),
        (pooled, "register_kv_cache_engine_driven_context", {"shm_name": 1, "pool_size": 0}),
        (pooled, "register_kv_cache_engine_driven_context", {"pool_size": 0, "shm_name": "x"}),
        (inline, "prepare_retrieve", {**plan, "success": False}),
        (inline, "prepare_retrieve", {**plan, "data": other}),
        (pooled, "prepare_store", slots),
        (PLAIN[2], "lookup", 0),
    ]
    for name, op, result in bad:
        exchange = exchanges[name, op]
        with pytest.raises(AssertionError):
            check_reply(name, exchange, (*exchange.reply[:2], msgpack.packb(result)))
