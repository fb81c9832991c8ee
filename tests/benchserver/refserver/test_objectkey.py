"""What names a chunk object: every field of it, and nothing that a request has besides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.refserver.objectkey import ObjectKey, object_key
from tests.faultstage import key


def test_a_clients_key_names_an_object_by_chunk_rank_and_group() -> None:
    wanted = key("a", None, cache_salt="salt")
    assert object_key(wanted, b"hash", 1, 3) == ObjectKey(b"hash", "m", 2, 1, "salt", 3)


def test_the_request_and_its_range_name_nothing() -> None:
    one, other = key("a", 0), key("b", 1, start=4, num_kv_readers=2)
    assert object_key(one, b"hash", 0, 0) == object_key(other, b"hash", 0, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chunk_hash", b"other"),
        ("model_name", "n"),
        ("world_size", 3),
        ("rank", 0),
        ("salt", "pepper"),
        ("group", 1),
    ],
)
def test_every_field_counts(field: str, value: object) -> None:
    name = ObjectKey(b"hash", "m", 2, 1, "salt")
    assert len({name, replace(name, **{field: value}), replace(name)}) == 2  # type: ignore[arg-type]
