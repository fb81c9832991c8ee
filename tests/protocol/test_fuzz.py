"""Whatever a peer sends either parses or is refused in words: no other error, and no lost request.

Drawn from three places: noise, well-formed msgpack of any shape, and recorded frames with a bit
flipped, an end cut off, another frame's tail spliced in, or frames dropped, doubled or swapped.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from protocol import codec, httpapi
from protocol.dialects import V056
from protocol.errors import RemoteProtocolError
from protocol.handles import (
    CpuShmHandle,
    CudaHandle,
    CudaRawHandle,
    handle_from_wire,
    handle_to_wire,
)
from protocol.keys import CacheKey, key_from_wire
from protocol.messages import (
    NO_UID,
    DuplicateReply,
    Incoming,
    LateReply,
    MalformedReply,
    Reply,
    UnknownReply,
)
from protocol.ops import Op
from protocol.session import ClientSession

Frames = tuple[bytes, ...]

GOLDEN = Path(__file__).parent.parent / "golden"
KEY = CacheKey(
    model_name="m", world_size=1, worker_id=0, token_ids=[1], start=0, end=1, request_id="r"
)
ARGS: dict[Op, tuple[Any, ...]] = {
    Op.REGISTER_KV_CACHE: (7, [], "m", 1, "vllm", {}, []),
    Op.UNREGISTER_KV_CACHE: (7,),
    Op.STORE: (KEY, 7, [[1]], b""),
    Op.RETRIEVE: (KEY, 7, [[1]], b"", 0),
    Op.LOOKUP: (KEY, 1),
    Op.QUERY_PREFETCH_STATUS: ("r",),
    Op.WAIT_PREFETCH_STATUS: ("r", 1.0),
    Op.FREE_LOOKUP_LOCKS: (KEY, 1),
    Op.END_SESSION: ("r",),
    Op.REGISTER_ENGINE_DRIVEN: ({},),
    Op.UNREGISTER_ENGINE_DRIVEN: (7,),
    Op.PREPARE_STORE: (KEY, 7),
    Op.COMMIT_STORE: (KEY, 7, b""),
    Op.PREPARE_RETRIEVE: (KEY, 7),
    Op.COMMIT_RETRIEVE: (KEY, 7),
    Op.CLEAR: (False,),
    Op.GET_CHUNK_SIZE: (),
    Op.PING: (None,),
    Op.REPORT_BLOCK_ALLOCATION: (7, "m", [{"req_id": "r", "new_block_ids": [1]}]),
    Op.GET_EXPERIMENTAL: (),
    Op.NOOP: (),
}
# A busy machine must not fail a run: examples are small, only their drawing may be slow.
fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def recorded(direction: str) -> list[Frames]:
    found = {
        message["op"]: tuple(bytes.fromhex(frame) for frame in message["frames"])
        for path in sorted(GOLDEN.glob("v056_*.json"))
        for message in json.loads(path.read_text())
        if message["direction"] == direction
    }
    return [found[op] for op in sorted(found)]


REQUESTS, REPLIES = recorded("request"), recorded("response")
REPLIED_OPS = [codec.decode_op(V056, frames[1]) for frames in REPLIES]

FIELDS = (
    "slots",
    "success",
    "data",
    "shape",
    "dtype",
    "mp",
    "model_name",
    "token_ids",
    "worker_id",
)
names = st.sampled_from(FIELDS)
json_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(names | st.text(max_size=4), inner, max_size=4)
        ),
        max_leaves=12,
    )


json_values = nested(json_scalars)
wire_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=16))
)
wire_values = nested(wire_scalars)
documents = wire_values.map(msgpack.packb)
op_frames = st.integers(0, 40).map(msgpack.packb) | st.sampled_from(list(V056.ops)).map(
    lambda op: bytes(msgpack.packb(op.value))
)
noise = st.lists(st.binary(max_size=40), max_size=18).map(tuple)
shaped = st.builds(
    lambda uid, op, payload: (uid, op, *payload),
    st.binary(max_size=9) | st.integers(0, 25).map(msgpack.packb),
    op_frames | documents,
    st.lists(documents, max_size=8),
)


@st.composite
def damaged(draw: st.DrawFn, whole: list[Frames], at_least: int = 0) -> Frames:
    """Draw one of `whole`, damaged in one to three places, none before frame `at_least`."""
    frames = list(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 3))):
        if len(frames) <= at_least:
            break
        at = draw(st.integers(at_least, len(frames) - 1))
        frames[at : at + 1] = draw(st.sampled_from(DAMAGES))(draw, frames[at], whole)
    return tuple(frames)


def flip(draw: st.DrawFn, frame: bytes, _: list[Frames]) -> Frames:
    if not frame:
        return (b"\x00",)
    # Half of the flips fall into the first bytes, where types and lengths stand.
    at = draw(st.integers(0, min(24, len(frame) - 1)) | st.integers(0, len(frame) - 1))
    return (frame[:at] + bytes([frame[at] ^ 1 << draw(st.integers(0, 7))]) + frame[at + 1 :],)


def truncate(draw: st.DrawFn, frame: bytes, _: list[Frames]) -> Frames:
    return (frame[: draw(st.integers(0, len(frame)))],)


def splice(draw: st.DrawFn, frame: bytes, whole: list[Frames]) -> Frames:
    other = draw(st.sampled_from(draw(st.sampled_from(whole))))
    cut = draw(st.integers(0, len(frame)))
    return (frame[:cut] + other[draw(st.integers(0, len(other))) :],)


def replace_value(draw: st.DrawFn, _: bytes, __: list[Frames]) -> Frames:
    return (draw(documents),)


def drop(_: st.DrawFn, __: bytes, ___: list[Frames]) -> Frames:
    return ()


def double(_: st.DrawFn, frame: bytes, __: list[Frames]) -> Frames:
    return (frame, frame)


DAMAGES = (flip, truncate, splice, replace_value, drop, double)


def parses_or_refuses(parse: Callable[[Any], Any], value: Any, *kinds: type) -> None:
    try:
        outcome = parse(value)
    except RemoteProtocolError as error:
        outcome = error
    assert type(outcome) in (*kinds, RemoteProtocolError)
    if type(outcome) is RemoteProtocolError:
        assert str(outcome).isascii()


def decode(frames: Frames) -> Incoming:
    incoming = codec.decode_request(V056, frames)
    assert (incoming.uid, incoming.op_frame) == frames[:2]
    return incoming


@fuzz
@given(noise | shaped)
@example((b"", b"\x16", b"\x91" * 1000 + b"\xc0"))
@example((b"", b"\x14", b"\xd6\xff\x00\x00\x00\x00"))
def test_a_server_parses_or_refuses_any_frames(frames: Frames) -> None:
    parses_or_refuses(decode, frames, Incoming)


@fuzz
@given(damaged(REQUESTS))
def test_a_server_parses_or_refuses_damaged_requests(frames: Frames) -> None:
    parses_or_refuses(decode, frames, Incoming)


def receive(session: ClientSession, frames: Frames) -> None:
    """Feed frames and check that a request left the table if and only if the event says so."""
    before = session.pending_count
    event = session.receive(frames, now_ns=1)
    ended = isinstance(event, Reply) or (isinstance(event, MalformedReply) and event.uid != NO_UID)
    assert session.pending_count == before - ended
    if not ended:
        others = (MalformedReply, UnknownReply, LateReply, DuplicateReply)
        assert isinstance(event, others)
    if isinstance(event, MalformedReply):
        assert event.reason
        assert event.reason.isascii()


def session_with(ops: list[Op]) -> ClientSession:
    session = ClientSession(V056)
    for op in ops:
        session.request(op, ARGS[op], now_ns=0)
    return session


@fuzz
@given(st.lists(noise | shaped, min_size=1, max_size=2))
@example([(b"\x11", b"\x16", b"\x91" * 1000 + b"\xc0")])
def test_a_client_turns_any_frames_into_an_event(messages: list[Frames]) -> None:
    session = session_with(list(V056.ops))
    for frames in messages:
        receive(session, frames)


@fuzz
@given(st.sampled_from(list(enumerate(V056.ops.items()))), documents)
def test_a_client_turns_any_result_into_an_event(numbered: Any, document: bytes) -> None:
    uid, (op, row) = numbered
    receive(session_with(list(V056.ops)), (bytes([uid]), bytes([row.id]), document))
    assert op in ARGS


NUMBERED_REPLIES = [(bytes([uid]), *frames[1:]) for uid, frames in enumerate(REPLIES)]


@fuzz
@given(damaged(NUMBERED_REPLIES) | damaged(NUMBERED_REPLIES, at_least=2))
def test_a_client_turns_damaged_replies_into_an_event(frames: Frames) -> None:
    receive(session_with(REPLIED_OPS), frames)


def test_undamaged_replies_are_accepted() -> None:
    session = session_with(REPLIED_OPS)
    for frames in NUMBERED_REPLIES:
        assert isinstance(session.receive(frames, now_ns=1), Reply)


STATUS = {
    "chunk_size": 256,
    "active_sessions": 0,
    "storage_manager": {"l1_manager": {"read_locked_count": 0, "write_locked_count": 0}},
    "cache_context_meta": {"1000": {}},
    "registered_non_cuda_instance_ids": [5],
}
KEY_MAP = {
    "model_name": "m",
    "world_size": 1,
    "worker_id": None,
    "token_ids": [1],
    "start": 0,
    "end": 1,
    "request_id": "r",
    "cache_salt": "",
    "num_kv_readers": 1,
}
DESCRIPTOR = {
    "type": "cpu_shm",
    "shm_name": "/k",
    "nbytes": 64,
    "version": 1,
    "metadata": {
        "dtype": "float16",
        "shape": [2, 16],
        "stride": [16, 1],
        "storage_offset": 0,
        "device_uuid": "cpu",
    },
}


@st.composite
def altered(draw: st.DrawFn, whole: dict[str, Any], values: st.SearchStrategy[Any]) -> Any:
    """Draw `whole` with one entry, here or in a map below, replaced or taken away."""
    name = draw(st.sampled_from(sorted(whole)))
    if isinstance(whole[name], dict) and whole[name] and draw(st.booleans()):
        return {**whole, name: draw(altered(whole[name], values))}
    if draw(st.integers(0, 4)) == 0:
        return {other: value for other, value in whole.items() if other != name}
    return {**whole, name: draw(values)}


@fuzz
@given(json_values | altered(STATUS, json_values))
def test_http_parsers_take_any_json(answer: Any) -> None:
    parses_or_refuses(httpapi.parse_status, answer, httpapi.ServerStatus)
    parses_or_refuses(httpapi.parse_version, answer, str)
    parses_or_refuses(httpapi.parse_transfer_mode, answer, str)
    parses_or_refuses(httpapi.parse_transfer_mode, {"mp": answer}, str)
    parses_or_refuses(lambda v: httpapi.parse_checksums(v, chunks=1), answer, tuple)
    success = {"status": "success", "chunk_checksums": answer}
    parses_or_refuses(lambda v: httpapi.parse_checksums(v, chunks=1), success, tuple)


@fuzz
@given(wire_values | altered(KEY_MAP, wire_values))
def test_a_key_is_read_from_any_value(value: Any) -> None:
    parses_or_refuses(key_from_wire, value, CacheKey)


METADATA: dict[str, Any] = {
    "dtype": "float16",
    "shape": (2, 4, 4),
    "stride": (16, 4, 1),
    "device_uuid": "6f4e1a50-93f5-8d1c-0b57-f0b0c8e2a9d1",
}
CUDA_DESCRIPTORS: list[dict[str, Any]] = [
    msgpack.unpackb(handle_to_wire(handle).data)
    for handle in (
        CudaHandle(share=(0, b"m", 64, 0, b"r", 0, b"e", True), **METADATA),
        CudaRawHandle(ipc_handle=bytes(64), alloc_offset=0, nbytes=64, **METADATA),
    )
]
descriptors = st.sampled_from([DESCRIPTOR, *CUDA_DESCRIPTORS])
inner_damage = st.sampled_from(CUDA_DESCRIPTORS).flatmap(
    lambda body: altered(body["metadata"], wire_values).map(lambda m: {**body, "metadata": m})
)
shares = st.lists(wire_values, min_size=7, max_size=9).map(
    lambda share: {**CUDA_DESCRIPTORS[0], "handle": share}
)


@fuzz
@given(
    wire_values
    | descriptors.flatmap(lambda body: altered(body, wire_values))
    | inner_damage
    | shares
)
def test_a_descriptor_is_read_from_any_value(value: Any) -> None:
    kinds = (CpuShmHandle, CudaHandle, CudaRawHandle)
    parses_or_refuses(handle_from_wire, value, *kinds)
    packed = msgpack.packb(value)
    parses_or_refuses(handle_from_wire, msgpack.ExtType(1, packed), *kinds)
    parses_or_refuses(handle_from_wire, msgpack.ExtType(1, packed[:-1]), *kinds)


def test_undamaged_descriptors_are_read() -> None:
    for body in (DESCRIPTOR, *CUDA_DESCRIPTORS):
        handle_from_wire(msgpack.ExtType(1, msgpack.packb(body)))
