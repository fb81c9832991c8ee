"""The wire of 0.5.6 in literal bytes, both ways, and what becomes of frames that are damaged."""

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from protocol import codec
from protocol.dialects import V056
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.handles import CpuShmHandle
from protocol.keys import CacheKey
from protocol.messages import (
    VOID,
    Incoming,
    PoolInfo,
    RetrievePlan,
    Slot,
    StorePlan,
    TransferResult,
)
from protocol.ops import Op

KEY = CacheKey(
    model_name="m",
    world_size=1,
    worker_id=0,
    token_ids=[1, 127, 256, 4294967295],
    start=0,
    end=4,
    request_id="r",
)
KEY_HEAD = b"\x8a\xaamodel_name\xa1m\xaaworld_size\x01\xa9worker_id"
KEY_TAIL = (
    b"\xa9token_ids\x94\x01\x7f\xcd\x01\x00\xce\xff\xff\xff\xff"
    b"\xa5start\x00"
    b"\xa3end\x04"
    b"\xaarequest_id\xa1r"
    b"\xaacache_salt\xa0"
    b"\xafrequest_configs\xc0"
    b"\xaenum_kv_readers\x01"
)
RANK_0 = KEY_HEAD + b"\x00" + KEY_TAIL
ALL_RANKS = KEY_HEAD + b"\xc0" + KEY_TAIL
LOOKUP_KEY = replace(KEY, worker_id=None)

HANDLE = CpuShmHandle(shm_name="/k", nbytes=64, dtype="float16", shape=(2, 4, 4), stride=(16, 4, 1))
HANDLES = (
    b"\x91\xc7\x78\x01\x85"
    b"\xa4type\xa7cpu_shm\xa8shm_name\xa2/k\xa6nbytes\x40\xa7version\x01\xa8metadata\x85"
    b"\xa5dtype\xa7float16\xa5shape\x93\x02\x04\x04\xa6stride\x93\x10\x04\x01"
    b"\xaestorage_offset\x00\xabdevice_uuid\xa3cpu"
)

SLOT = Slot(offset=4096, length=64, shape=(2, 16), dtype="float16")
SLOT_MAP = b"\x84\xa6offset\xcd\x10\x00\xa6length\x40\xa5shape\x92\x02\x10\xa5dtype\xa7float16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One exchange with uid 5; `body` None is the two-frame reply."""

    op: Op
    args: tuple[Any, ...] = ()
    op_frame: bytes
    payload: tuple[bytes, ...] = ()
    result: Any = VOID
    body: bytes | None = None

    @property
    def request(self) -> tuple[bytes, ...]:
        return (b"\x05", self.op_frame, *self.payload)

    @property
    def reply(self) -> tuple[bytes, ...]:
        return (
            (b"\x05", self.op_frame) if self.body is None else (b"\x05", self.op_frame, self.body)
        )


CASES = [
    Case(
        op=Op.REGISTER_KV_CACHE,
        args=(7, [HANDLE], "m", 1, "vllm", {"kv_layout": "NHD"}, [{"layer_indices": [0]}]),
        op_frame=b"\x01",
        payload=(
            b"\x07",
            HANDLES,
            b"\xa1m",
            b"\x01",
            b"\xa4vllm",
            b"\x81\xa9kv_layout\xa3NHD",
            b"\x91\x81\xadlayer_indices\x91\x00",
        ),
    ),
    Case(op=Op.UNREGISTER_KV_CACHE, args=(1000,), op_frame=b"\x02", payload=(b"\xcd\x03\xe8",)),
    Case(
        op=Op.STORE,
        args=(KEY, 7, [[1, 2], [300]], b"ev"),
        op_frame=b"\x06",
        payload=(RANK_0, b"\x07", b"\x92\x92\x01\x02\x91\xcd\x01\x2c", b"\xc4\x02ev"),
        result=TransferResult(event=b"\x00\xff", ok=True),
        body=b"\x92\xc4\x02\x00\xff\xc3",
    ),
    Case(
        op=Op.RETRIEVE,
        args=(KEY, 7, [[1]], b"", 16),
        op_frame=b"\x07",
        payload=(RANK_0, b"\x07", b"\x91\x91\x01", b"\xc4\x00", b"\x10"),
        result=TransferResult(event=b"", ok=False),
        body=b"\x92\xc4\x00\xc2",
    ),
    Case(op=Op.LOOKUP, args=(LOOKUP_KEY, 2), op_frame=b"\x08", payload=(ALL_RANKS, b"\x02")),
    Case(
        op=Op.QUERY_PREFETCH_STATUS,
        args=("r",),
        op_frame=b"\x09",
        payload=(b"\xa1r",),
        result=0,
        body=b"\x00",
    ),
    Case(op=Op.QUERY_PREFETCH_STATUS, args=("r",), op_frame=b"\x09", payload=(b"\xa1r",)),
    Case(
        op=Op.WAIT_PREFETCH_STATUS,
        args=("r", 0.5),
        op_frame=b"\x0a",
        payload=(b"\xa1r", b"\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"),
        result=300,
        body=b"\xcd\x01\x2c",
    ),
    Case(op=Op.WAIT_PREFETCH_STATUS, args=("r", 2), op_frame=b"\x0a", payload=(b"\xa1r", b"\x02")),
    Case(
        op=Op.FREE_LOOKUP_LOCKS,
        args=(LOOKUP_KEY, 1),
        op_frame=b"\x0c",
        payload=(ALL_RANKS, b"\x01"),
    ),
    Case(op=Op.END_SESSION, args=("r",), op_frame=b"\x0d", payload=(b"\xa1r",)),
    Case(
        op=Op.REGISTER_ENGINE_DRIVEN,
        args=({"instance_id": 7, "use_mla": False},),
        op_frame=b"\x0e",
        payload=(b"\x82\xabinstance_id\x07\xa7use_mla\xc2",),
        result=PoolInfo(shm_name="p", pool_bytes=4096),
        body=b"\x82\xa8shm_name\xa1p\xa9pool_size\xcd\x10\x00",
    ),
    Case(op=Op.UNREGISTER_ENGINE_DRIVEN, args=(7,), op_frame=b"\x0f", payload=(b"\x07",)),
    Case(
        op=Op.PREPARE_STORE,
        args=(KEY, 7),
        op_frame=b"\x10",
        payload=(RANK_0, b"\x07"),
        result=StorePlan(inline=False, slots=(SLOT,), chunk_indices=(1,)),
        body=b"\x81\xa7context\x82\xa5slots\x91" + SLOT_MAP + b"\xadchunk_indices\x91\x01",
    ),
    Case(
        op=Op.PREPARE_STORE,
        args=(KEY, 7),
        op_frame=b"\x10",
        payload=(RANK_0, b"\x07"),
        result=StorePlan(inline=True, slots=(), chunk_indices=()),
        body=b"\x81\xa7context\x80",
    ),
    Case(
        op=Op.COMMIT_STORE,
        args=(KEY, 7, b"\x80"),
        op_frame=b"\x11",
        payload=(RANK_0, b"\x07", b"\xc4\x01\x80"),
        result=True,
        body=b"\xc3",
    ),
    Case(
        op=Op.PREPARE_RETRIEVE,
        args=(KEY, 7),
        op_frame=b"\x12",
        payload=(RANK_0, b"\x07"),
        result=RetrievePlan(success=True, data=b"", slots=(SLOT,)),
        body=b"\x83\xa7success\xc3\xa4data\xc4\x00\xa7context\x81\xa5slots\x91" + SLOT_MAP,
    ),
    Case(
        op=Op.PREPARE_RETRIEVE,
        args=(KEY, 7),
        op_frame=b"\x12",
        payload=(RANK_0, b"\x07"),
        result=RetrievePlan(success=False, data=b"\x01", slots=()),
        body=b"\x83\xa7success\xc2\xa4data\xc4\x01\x01\xa7context\x80",
    ),
    Case(
        op=Op.COMMIT_RETRIEVE,
        args=(KEY, 7),
        op_frame=b"\x13",
        payload=(RANK_0, b"\x07"),
        result=False,
        body=b"\xc2",
    ),
    Case(op=Op.CLEAR, args=(True,), op_frame=b"\x14", payload=(b"\xc3",)),
    Case(op=Op.GET_CHUNK_SIZE, op_frame=b"\x15", result=256, body=b"\xcd\x01\x00"),
    Case(op=Op.PING, args=(7,), op_frame=b"\x16", payload=(b"\x07",), result=True, body=b"\xc3"),
    Case(op=Op.PING, args=(None,), op_frame=b"\x16", payload=(b"\xc0",), result=True, body=b"\xc3"),
    Case(
        op=Op.REPORT_BLOCK_ALLOCATION,
        args=(7, "m", [{"req_id": "r", "new_block_ids": [1, 2], "new_token_ids": [300]}]),
        op_frame=b"\x17",
        payload=(
            b"\x07",
            b"\xa1m",
            b"\x91\x83\xa6req_id\xa1r\xadnew_block_ids\x92\x01\x02\xadnew_token_ids\x91\xcd\x01\x2c",
        ),
    ),
    Case(op=Op.GET_EXPERIMENTAL, op_frame=b"\x20", result=["x"], body=b"\x91\xa1x"),
    Case(op=Op.NOOP, op_frame=b"\x18", result="OK", body=b"\xa2OK"),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.op.value)


def refused(frames: tuple[bytes, ...]) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode_request(V056, frames)
    return str(caught.value)


def refused_reply(case: Case, frames: tuple[bytes, ...]) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode_result(V056.ops[case.op], case.op, frames)
    return str(caught.value)


def test_every_operation_has_a_literal_exchange() -> None:
    assert {case.op for case in CASES} == set(V056.ops)


@each_case
def test_a_request_is_encoded(case: Case) -> None:
    assert codec.encode_request(V056, 5, case.op, case.args) == case.request


@each_case
def test_a_request_is_decoded(case: Case) -> None:
    assert codec.decode_request(V056, case.request) == Incoming(
        uid=b"\x05", op_frame=case.op_frame, op=case.op, args=case.args
    )


@each_case
def test_a_reply_is_encoded(case: Case) -> None:
    request = Incoming(uid=b"\x05", op_frame=case.op_frame, op=case.op, args=case.args)
    assert codec.encode_reply(V056, request, case.result) == case.reply


@each_case
def test_a_reply_is_decoded(case: Case) -> None:
    assert codec.decode_result(V056.ops[case.op], case.op, case.reply) == case.result


@each_case
def test_a_truncated_request_is_refused(case: Case) -> None:
    for at in range(1, len(case.request)):
        frame = case.request[at]
        for length in range(len(frame)):
            refused((*case.request[:at], frame[:length], *case.request[at + 1 :]))


@each_case
def test_an_extended_request_is_refused(case: Case) -> None:
    for at in range(1, len(case.request)):
        frame = case.request[at] + b"\x00"
        words = refused((*case.request[:at], frame, *case.request[at + 1 :]))
        assert "are not one msgpack document (ExtraData)" in words


@each_case
def test_a_request_that_lacks_or_repeats_a_frame_is_refused(case: Case) -> None:
    expected = len(case.payload)
    if expected:
        words = refused(case.request[:-1])
        assert words == f"{case.op.value}: {expected - 1} payload frames, expected {expected}"
    words = refused((*case.request, case.request[-1]))
    assert words == f"{case.op.value}: {expected + 1} payload frames, expected {expected}"


@each_case
def test_a_request_with_neighbours_swapped_is_refused(case: Case) -> None:
    fields = V056.ops[case.op].payload
    for at in range(len(fields) - 1):
        assert fields[at].kind != fields[at + 1].kind
        swapped = list(case.payload)
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
        words = refused((*case.request[:2], *swapped))
        assert words.startswith(f"{case.op.value}.{fields[at].name}: ")


@each_case
def test_a_request_with_its_operation_first_is_refused(case: Case) -> None:
    head = (case.op_frame, b"\x05")
    assert refused((*head, *case.payload)) == "operation 5 is not known in 0.5.6"


@each_case
def test_a_damaged_reply_is_refused(case: Case) -> None:
    uid, op_frame = case.reply[:2]
    words = refused_reply(case, (uid, op_frame, b"\xc0", b"\xc0"))
    assert words == f"{case.op.value}: the reply has 4 frames, expected 2 or 3"
    row = V056.ops[case.op]
    if row.result is None:
        words = refused_reply(case, (uid, op_frame, b"\xc0"))
        assert words == f"{case.op.value}: the reply has a result, expected none"
    elif not row.pending:
        words = refused_reply(case, (uid, op_frame))
        assert words == f"{case.op.value}: the reply lacks its result"
    for length in range(len(case.body or b"")):
        refused_reply(case, (uid, op_frame, (case.body or b"")[:length]))
    if case.body is not None:
        words = refused_reply(case, (uid, op_frame, case.body + b"\x00"))
        assert words.startswith(f"{case.op.value} result: ")


@pytest.mark.parametrize("case", [case for case in CASES if case.body], ids=lambda c: c.op.value)
def test_a_result_of_another_type_is_refused(case: Case) -> None:
    words = refused_reply(case, (b"\x05", case.op_frame, b"\xc0"))
    assert re.match(rf"{case.op.value} result: got None, expected .", words)


@pytest.mark.parametrize("uid", [b"", b"\x00", b"\xff", b"\xc1garbage", b"u" * 256])
def test_a_server_echoes_any_uid(uid: bytes) -> None:
    request = codec.decode_request(V056, (uid, b"\x18"))
    assert codec.encode_reply(V056, request, "OK") == (uid, b"\x18", b"\xa2OK")


@pytest.mark.parametrize("op_frame", [b"\xa4noop", b"\xd9\x04noop", b"\xcc\x18", b"\xd0\x18"])
def test_an_operation_may_be_named_and_is_echoed_as_it_came(op_frame: bytes) -> None:
    request = codec.decode_request(V056, (b"\x05", op_frame))
    assert request == Incoming(uid=b"\x05", op_frame=op_frame, op=Op.NOOP, args=())
    assert codec.encode_reply(V056, request, "OK") == (b"\x05", op_frame, b"\xa2OK")


def test_a_dialect_without_names_takes_numbers_only() -> None:
    numbers_only = replace(V056, op_names=False)
    assert codec.decode_op(numbers_only, b"\x18") is Op.NOOP
    with pytest.raises(RemoteProtocolError, match=r"^operation 'noop' is not known in 0\.5\.6$"):
        codec.decode_op(numbers_only, b"\xa4noop")


@pytest.mark.parametrize(
    ("op_frame", "shown"),
    [
        (b"\x00", "0"),
        (b"\x0b", "11"),
        (b"\x19", "25"),
        (b"\x28", "40"),
        (b"\xff", "-1"),
        (b"\xcd\x27\x0f", "9999"),
        (b"\xc3", "True"),
        (b"\xc0", "None"),
        (b"\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", "1.0"),
        (b"\xa4NOOP", "'NOOP'"),
        (b"\xc4\x04noop", "b'noop'"),
        (b"\x91\x18", "[24]"),
    ],
)
def test_an_operation_that_is_not_known(op_frame: bytes, shown: str) -> None:
    assert refused((b"\x05", op_frame)) == f"operation {shown} is not known in 0.5.6"


def test_the_number_of_frames_is_bounded() -> None:
    for frames in ((), (b"\x05",), (b"\x18",) * 17):
        assert refused(frames) == f"a request has 2 to 16 frames, got {len(frames)}"
    assert refused((b"\x18",) * 16) == "noop: 14 payload frames, expected 0"


@pytest.mark.parametrize("frames", [(b"u" * 257, b"\x18"), (b"\x05", b"\xd9\xff" + b"n" * 255)])
def test_the_length_of_uid_and_operation_is_bounded(frames: tuple[bytes, ...]) -> None:
    assert refused(frames) == "uid and operation have at most 256 bytes"


def test_an_operation_at_its_bound_is_still_decoded() -> None:
    words = refused((b"\x05", b"\xd9\xfe" + b"n" * 254))
    assert words == f"operation '{'n' * 56}... is not known in 0.5.6"


def test_the_length_of_a_frame_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_FRAME_BYTES", 3)
    assert codec.unpack(b"\xa2OK", "place") == "OK"
    with pytest.raises(RemoteProtocolError, match=r"^place: 4 bytes, at most 3$"):
        codec.unpack(b"\xa3OKK", "place")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "x: 0 bytes starting b'' are not one msgpack document (ValueError)"),
        (b"\xc1", "x: 1 bytes starting b'\\xc1' are not one msgpack document (FormatError)"),
        (b"\x92\x01", "x: 2 bytes starting b'\\x92\\x01' are not one msgpack document"),
        (b"\x01\x02", "x: 2 bytes starting b'\\x01\\x02' are not one msgpack document (ExtraData)"),
        (b"\xa1\xff", "x: 2 bytes starting b'\\xa1\\xff' are not one msgpack document (Unicode"),
        (b"\x81\x01\x02", "x: 3 bytes starting b'\\x81\\x01\\x02' are not one msgpack document"),
        (b"\xdd\xff\xff\xff\xff", "x: 5 bytes starting b'\\xdd\\xff\\xff\\xff\\xff' are not one"),
        (b"\x91" * 4096, "x: 4096 bytes starting b'" + "\\x91" * 24 + "' are not one msgpack"),
        (b"\x91" * 5000, "x: 5000 bytes claim 257 or more elements, expected at most 256, "),
    ],
)
def test_what_is_not_one_document(frame: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        codec.unpack(frame, "x")
    assert str(caught.value).startswith(words)


def test_a_result_that_nests_deeper_than_the_stack_is_refused() -> None:
    frames = (b"\x05", b"\x16", b"\x91" * 1000 + b"\xc0")
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode_result(V056.ops[Op.PING], Op.PING, frames)
    words = f"ping result: got {'[' * 57}..., expected a bool"
    assert str(caught.value) == words


def test_a_refused_payload_names_its_place() -> None:
    words = refused((b"\x05", b"\x0d", b"\x01"))
    assert words == "end_session.request_id: got 1, expected a string"
    words = refused((b"\x05", b"\x14", b"\x93"))
    assert words.startswith("clear.force: 1 bytes starting b'\\x93' are not one msgpack document")


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        (Op.PING, (), "ping takes (instance_id), got 0 values"),
        (Op.NOOP, (1,), "noop takes (), got 1 values"),
        (Op.LOOKUP, (KEY,), "lookup takes (key, tp_size), got 1 values"),
        (Op.PING, (1 << 64,), "ping.instance_id: cannot be packed: "),
        (Op.PING, (object(),), "ping.instance_id: cannot be packed: "),
        (Op.END_SESSION, ("\ud800",), "end_session.request_id: cannot be packed: "),
        (Op.LOOKUP, (replace(KEY, token_ids=range(2)), 1), "lookup.key: cannot be packed: "),
        (Op.LOOKUP, (replace(KEY, model_name="a@b"), 1), "a model name must not contain '@'"),
    ],
)
def test_a_request_that_is_not_sent(op: Op, args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(LocalProtocolError, match="^" + re.escape(words)):
        codec.encode_request(V056, 5, op, args)


@pytest.mark.parametrize("change", [{"nbytes": 1 << 64}, {"shm_name": "\ud800"}])
def test_a_descriptor_that_cannot_be_packed_is_not_sent(change: dict[str, Any]) -> None:
    args: Any = (7, [replace(HANDLE, **change)], "m", 1, "vllm", {}, [])
    with pytest.raises(LocalProtocolError, match=r"^register_kv_cache.kv_cache: cannot be packed"):
        codec.encode_request(V056, 5, Op.REGISTER_KV_CACHE, args)


def test_an_operation_that_the_release_lacks_is_not_sent() -> None:
    older = replace(V056, name="0.4.1", ops={Op.NOOP: V056.ops[Op.NOOP]})
    with pytest.raises(LocalProtocolError, match=r"^ping does not exist in release 0\.4\.1$"):
        codec.encode_request(older, 5, Op.PING, (None,))


def test_a_reply_that_has_no_place_for_a_result_is_not_sent() -> None:
    request = Incoming(uid=b"\x05", op_frame=b"\x0d", op=Op.END_SESSION, args=("r",))
    with pytest.raises(LocalProtocolError, match=r"^end_session has no result, got True$"):
        codec.encode_reply(V056, request, True)


def test_a_reply_that_cannot_be_packed_is_not_sent() -> None:
    request = Incoming(uid=b"\x05", op_frame=b"\x18", op=Op.NOOP, args=())
    with pytest.raises(LocalProtocolError, match=r"^noop result: cannot be packed: "):
        codec.encode_reply(V056, request, object())


LARGE = bytes(range(256)) * (codec.LARGE_BYTES // 256)


def test_large_bytes_are_packed_as_msgpack_does() -> None:
    _, _, _, _, data = codec.encode_request(V056, 1, Op.COMMIT_STORE, (KEY, 1, LARGE))
    assert data == b"\xc6\x00\x10\x00\x00" + LARGE
    request = Incoming(uid=b"\x01", op_frame=b"\x12", op=Op.PREPARE_RETRIEVE, args=())
    plan = RetrievePlan(success=True, data=LARGE, slots=())
    _, _, result = codec.encode_reply(V056, request, plan)
    want = b"\x83\xa7success\xc3\xa4data\xc6\x00\x10\x00\x00" + LARGE + b"\xa7context\x80"
    assert result == want
    found = codec.decode_result(V056.ops[Op.PREPARE_RETRIEVE], request.op, (b"", b"", result))
    assert found == plan


def test_large_bytes_are_read_as_a_view_of_the_frame() -> None:
    frames = codec.encode_request(V056, 1, Op.COMMIT_STORE, (KEY, 1, LARGE))
    data = codec.decode_request(V056, frames).args[2]
    assert isinstance(data, memoryview)
    assert data.obj is frames[4]
    assert data == LARGE


@pytest.mark.parametrize("damage", [lambda f: f[:-1], lambda f: f + b"\x00", lambda f: b"\xc5" + f])
def test_large_bytes_with_a_wrong_length_are_refused(damage: Any) -> None:
    *head, data = codec.encode_request(V056, 1, Op.COMMIT_STORE, (KEY, 1, LARGE))
    with pytest.raises(RemoteProtocolError, match=r"commit_store\.data: 10485"):
        codec.decode_request(V056, (*head, damage(data)))
