"""Documents that would cost far more than their bytes are refused before they are decoded."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import bounds, codec
from protocol.bounds import MAX_SLOTS, check_json, check_msgpack
from protocol.dialects import V056, V057
from protocol.errors import RemoteProtocolError
from protocol.handles import handle_from_wire
from protocol.inline.envelope import decode_envelope
from protocol.keys import CacheKey
from protocol.messages import RetrievePlan, Slot
from protocol.ops import Op
from protocol.values import clip

N = 1 << 20

ARRAY, MAP = b"\xdd", b"\xdf"


def many(head: bytes, count: int, item: bytes) -> bytes:
    """An array or a map that says it has so many items."""
    return head + struct.pack(">I", count) + item * count


HOSTILE = {
    "empty arrays": many(ARRAY, N, b"\x90"),
    "empty maps": many(ARRAY, N, b"\x80"),
    "arrays of one": many(ARRAY, N, b"\x91\x01"),
    "a map of arrays": many(MAP, N, b"\x01\x90"),
    "texts": many(ARRAY, 2 * N, b"\xa0"),
    "numbers": many(ARRAY, 17 * N, b"\x01"),
    "arrays in arrays": b"\x91" * N,
    "arrays that say they are long": (ARRAY + struct.pack(">I", N)) * 1000 + b"\x01" * N,
    "arrays in a text's place": b"\x92\xda\xff\xff" + b"x" * 65535 + many(ARRAY, N, b"\x90"),
    "arrays behind numbers": b"\xdc\x07\xd0" + b"\x01" * 1999 + many(ARRAY, N, b"\x90"),
    "arrays behind an extension": b"\x93\xc7\x02\x01ab\xd5\x01\x90\x90" + many(ARRAY, N, b"\x90"),
}


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """Return how many bytes were allocated at most since the test began."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take fewer steps until a document is refused; tracing memory makes each of them slow."""
    monkeypatch.setattr(bounds, "MAX_CONTAINERS", 1000)
    monkeypatch.setattr(bounds, "MAX_HEADS", 4000)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("op", [Op.NOOP, Op.STORE, Op.GET_EXPERIMENTAL, Op.PREPARE_RETRIEVE])
def test_a_hostile_reply_costs_little(op: Op, name: str, peak: Callable[[], int]) -> None:
    document = HOSTILE[name]
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode_result(V056.ops[op], op, (b"\0", b"\0", document))
    assert len(str(caught.value)) < 200
    assert peak() < 4 * N


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("op", [Op.LOOKUP, Op.REGISTER_ENGINE_DRIVEN, Op.END_SESSION])
def test_a_hostile_request_costs_little(op: Op, name: str, peak: Callable[[], int]) -> None:
    row = V056.ops[op]
    frames = (b"\0", codec.op_frame(row.id), *[HOSTILE[name]] * len(row.payload))
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(V056, frames)
    assert peak() < 4 * N


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("name", HOSTILE)
def test_documents_inside_messages(name: str, peak: Callable[[], int]) -> None:
    for read in (decode_envelope, lambda data: handle_from_wire(msgpack.ExtType(1, data))):
        with pytest.raises(RemoteProtocolError):
            read(HOSTILE[name])
    assert peak() < 4 * N


def test_texts_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a step of ours, so a key of sixteen million texts would take seconds."""
    monkeypatch.setattr(bounds, "MAX_HEADS", 4000)
    check_msgpack(b"\xdc\x0f\x9f" + b"\xa2ab" * 3999, "x", N)
    with pytest.raises(RemoteProtocolError, match="claim 4001 or more elements"):
        check_msgpack(b"\xdc\x0f\xa0" + b"\xa2ab" * 4000, "x", N)


def test_a_long_key_is_read() -> None:
    key = CacheKey(
        model_name="m" * 200,
        world_size=1,
        worker_id=None,
        token_ids=[index * 7 % 150_000 for index in range(50_000)],
        start=0,
        end=50_000,
        request_id="r",
    )
    for dialect in (V056, V057):
        frames = codec.encode_request(dialect, 1, Op.LOOKUP, (key, 1))
        read = codec.decode_request(dialect, frames).args[0]
        assert read.token_ids == key.token_ids


def test_a_plan_of_the_most_slots_is_read() -> None:
    slot = Slot(offset=1 << 40, length=1 << 20, shape=(2, 32, 256, 1024), dtype="bfloat16")
    row = V056.ops[Op.PREPARE_RETRIEVE]
    assert row.result is not None
    plan = RetrievePlan(success=True, data=b"", slots=(slot,) * MAX_SLOTS)
    packed = msgpack.packb(row.result.to_wire(plan))
    assert codec.unpack(packed, "plan", row.result.elements) == msgpack.unpackb(packed)
    more = RetrievePlan(success=True, data=b"", slots=(slot,) * (MAX_SLOTS + 200))
    with pytest.raises(RemoteProtocolError, match="claim"):
        codec.unpack(msgpack.packb(row.result.to_wire(more)), "plan", row.result.elements)


def test_large_bytes_within_a_map_are_read() -> None:
    row = V056.ops[Op.PREPARE_RETRIEVE]
    wire = {"success": True, "data": b"\x90" * (8 * N), "context": {}}
    plan = codec.decode_result(row, Op.PREPARE_RETRIEVE, (b"\0", b"\0", msgpack.packb(wire)))
    assert plan.data == wire["data"]


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary() | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=40)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner),
)  # fmt: skip


def elements(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(elements(name) + elements(item) for name, item in value.items())
    if isinstance(value, list):
        return 1 + sum(elements(item) for item in value)
    return 1


@given(DOCUMENTS)
def test_elements_are_counted_as_they_are(value: Any) -> None:
    """Behind enough bytes to be looked at, each document passes with its own number of elements."""
    packed = msgpack.packb([b"x" * 5000, value, 7])
    count = 3 + elements(value)
    check_msgpack(packed, "x", count)
    assert msgpack.unpackb(packed, strict_map_key=False)[2] == 7
    if isinstance(value, (list, dict)) and value:
        with pytest.raises(RemoteProtocolError, match=r"^x: \d+ bytes claim \d+ or more elements"):
            check_msgpack(packed, "x", count - 1)


@given(st.binary(max_size=300))
def test_noise_passes_or_is_refused(noise: bytes) -> None:
    document = b"\x93\xc5\x13\x88" + b"x" * 5000 + noise
    try:
        check_msgpack(document, "x")
    except RemoteProtocolError:
        return
    try:
        codec.unpack(document, "x")
    except RemoteProtocolError:
        return


@pytest.mark.parametrize(
    "value",
    [["ab" * 50_000], [[1] * 50_000], {"a": {1: "x" * 50_000}}, 9**9999],
    ids=["text", "numbers", "maps", "number"],
)
def test_what_an_error_shows_costs_little(value: Any, peak: Callable[[], int]) -> None:
    # What runs the tests has allocated something too, since the memory is looked at.
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    assert len(clip(value)) <= 60
    assert peak() - before < 20_000


@pytest.mark.parametrize(
    "document",
    [b"[" * N, b"[" + b"[]," * N + b"1]", b"[" + b"1," * N + b"1]", b'{"":' * N],
)
def test_json_that_is_mostly_brackets_or_commas(document: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="more than any answer has"):
        check_json(document, "x")


def test_json_as_servers_send_it() -> None:
    digests = b'{"chunk_checksums": [' + b",".join([b'"' + b"0" * 32 + b'"'] * N) + b"]}"
    for document in (b"", b"[]", b"[" * 4096, digests):
        check_json(document, "x")
