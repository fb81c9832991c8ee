"""The cache key: its map, and every key that is refused, with the words."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.keys import CacheKey, key_from_wire, key_to_wire, model_name_problem, salt_problem

FIELDS_056 = (
    "model_name",
    "world_size",
    "worker_id",
    "token_ids",
    "start",
    "end",
    "request_id",
    "cache_salt",
    "request_configs",
    "num_kv_readers",
)
KEY = CacheKey(
    model_name="m",
    world_size=2,
    worker_id=1,
    token_ids=[7, 0, 4294967295],
    start=0,
    end=3,
    request_id="r",
    cache_salt="s",
    num_kv_readers=4,
)
WIRE: dict[str, Any] = {
    "model_name": "m",
    "world_size": 2,
    "worker_id": 1,
    "token_ids": [7, 0, 4294967295],
    "start": 0,
    "end": 3,
    "request_id": "r",
    "cache_salt": "s",
    "request_configs": None,
    "num_kv_readers": 4,
}


def test_a_key_becomes_a_map_in_the_order_of_the_release() -> None:
    wire = key_to_wire(KEY, FIELDS_056)
    assert wire == WIRE
    assert tuple(wire) == FIELDS_056


def test_a_release_with_fewer_fields_gets_fewer() -> None:
    assert key_to_wire(KEY, ("end", "model_name")) == {"end": 3, "model_name": "m"}


def test_a_map_becomes_a_key() -> None:
    assert key_from_wire(WIRE) == KEY


def test_the_order_of_fields_does_not_matter_and_unknown_ones_are_ignored() -> None:
    shuffled = {"new_field": [1], **dict(reversed(WIRE.items()))}
    assert key_from_wire(shuffled) == KEY


def test_optional_fields_have_the_defaults_of_the_wire() -> None:
    optional = ("cache_salt", "request_configs", "num_kv_readers")
    wire = {name: value for name, value in WIRE.items() if name not in optional}
    assert key_from_wire(wire) == replace(KEY, cache_salt="", num_kv_readers=0)


def test_a_lookup_over_all_ranks_has_no_worker() -> None:
    assert key_to_wire(replace(KEY, worker_id=None), ("worker_id",)) == {"worker_id": None}
    assert key_from_wire({**WIRE, "worker_id": None}) == replace(KEY, worker_id=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_name": ""}, "a model name must not be empty"),
        ({"model_name": "a@b"}, "a model name must not contain '@'"),
        ({"cache_salt": "@"}, "a cache salt must not contain '@'"),
        ({"cache_salt": "x/"}, "a cache salt must not contain '/'"),
        ({"cache_salt": "\\"}, "a cache salt must not contain '\\\\'"),
        ({"cache_salt": "\0/"}, "a cache salt must not contain '\\x00' '/'"),
        (
            {"cache_salt": "x" * 129},
            "a cache salt has at most 128 characters, this one has 129",
        ),
        ({"num_kv_readers": 0}, "num_kv_readers must be at least 1, not 0"),
        ({"num_kv_readers": -1}, "num_kv_readers must be at least 1, not -1"),
    ],
)
def test_keys_that_no_server_would_answer(change: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        key_to_wire(replace(KEY, **change), FIELDS_056)
    assert str(caught.value) == words


@pytest.mark.parametrize("salt", ["", "x" * 128, "tenant-1", "ä ö"])
def test_legal_salts(salt: str) -> None:
    assert salt_problem(salt) == ""
    assert key_from_wire({**WIRE, "cache_salt": salt}).cache_salt == salt


@pytest.mark.parametrize("name", ["m", "org/model", "a b", "\\", "ü"])
def test_legal_model_names(name: str) -> None:
    assert model_name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    ["model_name", "world_size", "worker_id", "token_ids", "start", "end", "request_id"],
)
def test_a_required_field_that_is_missing(name: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        key_from_wire({field: value for field, value in WIRE.items() if field != name})
    assert str(caught.value) == f"key: field {name} is missing"


TOKENS = "an array of integers from 0 to 2^32-1"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("model_name", b"m", "a string"),
        ("model_name", None, "a string"),
        ("world_size", True, "an integer"),
        ("world_size", 1.0, "an integer"),
        ("worker_id", "0", "an integer or nil"),
        ("worker_id", False, "an integer or nil"),
        ("token_ids", None, TOKENS),
        ("token_ids", b"\x00\x01", TOKENS),
        ("token_ids", [-1], TOKENS),
        ("token_ids", [4294967296], TOKENS),
        ("token_ids", [1, True], TOKENS),
        ("token_ids", [1.0], TOKENS),
        ("token_ids", [[1]], TOKENS),
        ("start", None, "an integer"),
        ("end", "3", "an integer"),
        ("request_id", 5, "a string"),
        ("cache_salt", None, "a legal salt"),
        ("cache_salt", "a@", "a legal salt"),
        ("cache_salt", "x" * 129, "a legal salt"),
        ("num_kv_readers", None, "an integer"),
        ("num_kv_readers", True, "an integer"),
    ],
)
def test_a_field_of_a_wrong_type(name: str, value: Any, expected: str) -> None:
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    with pytest.raises(RemoteProtocolError) as caught:
        key_from_wire({**WIRE, name: value})
    assert str(caught.value) == f"key.{name}: got {shown}, expected {expected}"


@pytest.mark.parametrize(
    ("value", "kind"), [(None, "NoneType"), ([], "list"), ("m", "str"), (1, "int"), (b"", "bytes")]
)
def test_a_key_that_is_no_map(value: Any, kind: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        key_from_wire(value)
    assert str(caught.value) == f"key: got {kind}, expected a map"
