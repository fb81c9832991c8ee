"""Every wire type: the values that it carries, and those that it refuses, with the words."""

import re
from typing import Any

import pytest

from protocol import fields
from protocol.errors import RemoteProtocolError
from protocol.fields import Kind
from protocol.messages import PoolInfo, RetrievePlan, Slot, StorePlan, TransferResult

SLOT = Slot(offset=4096, length=64, shape=(2, 16), dtype="float16")
SLOT_WIRE = {"offset": 4096, "length": 64, "shape": [2, 16], "dtype": "float16"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (fields.INT, 0),
        (fields.INT, -5),
        (fields.OPT_INT, None),
        (fields.OPT_INT, 3),
        (fields.STR, ""),
        (fields.BYTES, b"\x00"),
        (fields.BOOL, True),
        (fields.BOOL, False),
        (fields.BOOL, 1),
        (fields.FLOAT, 0.5),
        (fields.FLOAT, 2),
        (fields.MAP, {}),
        (fields.MAP, {"a": [1]}),
        (fields.MAPS, []),
        (fields.MAPS, [{}, {"a": 1}]),
        (fields.BLOCK_IDS, []),
        (fields.BLOCK_IDS, [[], [1, 2]]),
    ],
)
def test_plain_values_pass_unchanged(kind: Kind, value: Any) -> None:
    assert kind.to_wire(value) is value
    assert kind.from_wire(value) is value


@pytest.mark.parametrize(
    ("kind", "refused", "expected"),
    [
        (fields.INT, [True, 1.0, "1", None, [1]], "an integer"),
        (fields.OPT_INT, [False, 1.0, ""], "an integer or nil"),
        (fields.STR, [b"x", None, 1], "a string"),
        (fields.BYTES, ["x", None, [1]], "bytes"),
        (fields.BOOL, [None, 1.0, "true"], "a bool"),
        (fields.FLOAT, [True, None, "0.5"], "a number"),
        (fields.MAP, [None, [], "{}"], "a map"),
        (fields.MAPS, [None, {}, [{}, []], ["a"]], "an array of maps"),
        (
            fields.BLOCK_IDS,
            [None, [1], [[1], None], [[True]], [[1.0]], {}],
            "an array of arrays of block ids, one a group",
        ),
        (fields.HANDLES, [None, {}, b""], "an array of tensor descriptors"),
        (
            fields.TRANSFER,
            [None, [], [b""], [b"", True, 1], ["", True], [b"", 1], {}],
            "[event bytes, bool]",
        ),
        (fields.POOL_INFO, [None, [], "pool"], "a map {shm_name, pool_size}"),
        (
            fields.POOL_INFO,
            [{}, {"shm_name": "p"}, {"shm_name": b"p", "pool_size": 1}]
            + [{"shm_name": "p", "pool_size": size} for size in (-1, True, 1.0, None)],
            "a map {shm_name: string, pool_size: integer}",
        ),
        (
            fields.POOL_AND_NULL_INFO,
            [{"shm_name": "p", "pool_size": 1, "null_block_id": bad} for bad in (True, "0", 0.0)],
            "an integer as null_block_id",
        ),
        (
            fields.STORE_PLAN,
            [None, [], {}, {"context": None}, {"context": []}],
            "a map with a map `context`",
        ),
        (
            fields.RETRIEVE_PLAN,
            [None, {"success": True, "data": b""}],
            "a map with a map `context`",
        ),
        (
            fields.RETRIEVE_PLAN,
            [
                {"context": {}, "success": 1, "data": b""},
                {"context": {}, "success": True, "data": None},
                {"context": {}, "success": True, "data": ""},
                {"context": {}},
            ],
            "a map {success: bool, data: bytes, context: map}",
        ),
    ],
)
def test_other_types_are_refused(kind: Kind, refused: list[Any], expected: str) -> None:
    for value in refused:
        with pytest.raises(RemoteProtocolError) as caught:
            kind.from_wire(value)
        assert re.fullmatch(rf"got .*, expected {re.escape(expected)}", str(caught.value))


@pytest.mark.parametrize(
    ("kind", "value", "wire"),
    [
        (fields.TRANSFER, TransferResult(event=b"e", ok=False), [b"e", False]),
        (
            fields.POOL_INFO,
            PoolInfo(shm_name="p", pool_bytes=9),
            {"shm_name": "p", "pool_size": 9},
        ),
        (fields.POOL_INFO, PoolInfo(shm_name="", pool_bytes=0), {"shm_name": "", "pool_size": 0}),
        (
            fields.POOL_AND_NULL_INFO,
            PoolInfo(shm_name="p", pool_bytes=9, null_block_id=0),
            {"shm_name": "p", "pool_size": 9, "null_block_id": 0},
        ),
        (
            fields.POOL_AND_NULL_INFO,
            PoolInfo(shm_name="", pool_bytes=0),
            {"shm_name": "", "pool_size": 0},
        ),
        (
            fields.STORE_PLAN,
            StorePlan(inline=True, slots=(), chunk_indices=()),
            {"context": {}},
        ),
        (
            fields.STORE_PLAN,
            StorePlan(inline=False, slots=(), chunk_indices=()),
            {"context": {"slots": [], "chunk_indices": []}},
        ),
        (
            fields.STORE_PLAN,
            StorePlan(inline=False, slots=(SLOT,), chunk_indices=(3,)),
            {"context": {"slots": [SLOT_WIRE], "chunk_indices": [3]}},
        ),
        (
            fields.RETRIEVE_PLAN,
            RetrievePlan(success=True, data=b"", slots=(SLOT,)),
            {"success": True, "data": b"", "context": {"slots": [SLOT_WIRE]}},
        ),
        (
            fields.RETRIEVE_PLAN,
            RetrievePlan(success=False, data=b"x", slots=()),
            {"success": False, "data": b"x", "context": {}},
        ),
    ],
)
def test_results_both_ways(kind: Kind, value: Any, wire: Any) -> None:
    assert kind.to_wire(value) == wire
    assert kind.from_wire(wire) == value


def test_a_generation_that_names_no_null_block_writes_none() -> None:
    info = PoolInfo(shm_name="p", pool_bytes=9, null_block_id=0)
    assert fields.POOL_INFO.to_wire(info) == {"shm_name": "p", "pool_size": 9}


def test_unknown_fields_of_a_result_are_ignored() -> None:
    wire = {"shm_name": "p", "pool_size": 9, "null_block_id": 0}
    assert fields.POOL_INFO.from_wire(wire) == PoolInfo(shm_name="p", pool_bytes=9)
    slots = [{**SLOT_WIRE, "numa": 1}]
    plan = fields.STORE_PLAN.from_wire({"context": {"slots": slots, "chunk_indices": [0]}, "n": 1})
    assert plan == StorePlan(inline=False, slots=(SLOT,), chunk_indices=(0,))


@pytest.mark.parametrize(
    ("slot", "expected"),
    [
        (None, "a slot map"),
        ([4096, 64], "a slot map"),
        ({**SLOT_WIRE, "offset": None}, "a slot with integers offset and length"),
        ({**SLOT_WIRE, "offset": True}, "a slot with integers offset and length"),
        ({**SLOT_WIRE, "length": "64"}, "a slot with integers offset and length"),
        ({**SLOT_WIRE, "shape": 32}, "a slot with an array shape and a string dtype"),
        ({**SLOT_WIRE, "shape": [2.0]}, "a slot with an array shape and a string dtype"),
        ({**SLOT_WIRE, "dtype": 2}, "a slot with an array shape and a string dtype"),
        ({**SLOT_WIRE, "offset": -1}, "a slot without negative numbers"),
        ({**SLOT_WIRE, "length": -1}, "a slot without negative numbers"),
        ({**SLOT_WIRE, "shape": [2, -16]}, "a slot without negative numbers"),
    ],
)
def test_slots_that_are_refused(slot: Any, expected: str) -> None:
    store = {"context": {"slots": [slot], "chunk_indices": [0]}}
    retrieve = {"success": True, "data": b"", "context": {"slots": [slot]}}
    for kind, wire in ((fields.STORE_PLAN, store), (fields.RETRIEVE_PLAN, retrieve)):
        with pytest.raises(RemoteProtocolError, match=f", expected {expected}$"):
            kind.from_wire(wire)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"slots": None, "chunk_indices": []}, "got None, expected an array of slots"),
        ({"chunk_indices": []}, "got None, expected an array of slots"),
        ({"slots": []}, "got None, expected 0 chunk indices, one a slot"),
        (
            {"slots": [SLOT_WIRE], "chunk_indices": [0, 1]},
            "got [0, 1], expected 1 chunk indices, one a slot",
        ),
        (
            {"slots": [SLOT_WIRE], "chunk_indices": [True]},
            "got [True], expected 1 chunk indices, one a slot",
        ),
        (
            {"slots": [SLOT_WIRE], "chunk_indices": [-1]},
            "got [-1], expected chunk indices of 0 or more",
        ),
    ],
)
def test_store_plans_that_are_refused(context: Any, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        fields.STORE_PLAN.from_wire({"context": context})
    assert str(caught.value) == words


def test_the_number_of_slots_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "MAX_SLOTS", 2)
    plan = {"success": True, "data": b"", "context": {"slots": [SLOT_WIRE] * 2}}
    assert fields.RETRIEVE_PLAN.from_wire(plan).slots == (SLOT, SLOT)
    plan["context"] = {"slots": [SLOT_WIRE] * 3}
    with pytest.raises(RemoteProtocolError, match="expected an array of slots"):
        fields.RETRIEVE_PLAN.from_wire(plan)


def test_an_error_shows_a_long_value_cut_and_in_ascii() -> None:
    for value, shown in (
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 56 + "..."),
        ("\n\u2028" + "x" * 100, "'\\n\\u2028" + "x" * 48 + "..."),
    ):
        with pytest.raises(RemoteProtocolError) as caught:
            fields.INT.from_wire(value)
        assert str(caught.value) == f"got {shown}, expected an integer"
