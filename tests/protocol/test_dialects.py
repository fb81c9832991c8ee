"""The table of 0.5.6 against the numbers of its release, and which release speaks what."""

import pytest

from protocol.dialects import DIALECTS, V056, dialect_of, known_releases, release_of
from protocol.errors import LocalProtocolError
from protocol.ops import TRAITS, Op

# Name on the wire: (id, payload fields, has a result, may be pending).
OPERATIONS_056: dict[str, tuple[int, int, bool, bool]] = {
    "register_kv_cache": (1, 7, False, False),
    "unregister_kv_cache": (2, 1, False, False),
    "store": (6, 4, True, False),
    "retrieve": (7, 5, True, False),
    "lookup": (8, 2, False, False),
    "query_prefetch_status": (9, 1, True, True),
    "wait_prefetch_status": (10, 2, True, True),
    "free_lookup_locks": (12, 2, False, False),
    "end_session": (13, 1, False, False),
    "register_kv_cache_engine_driven_context": (14, 1, True, False),
    "unregister_kv_cache_engine_driven_context": (15, 1, False, False),
    "prepare_store": (16, 2, True, False),
    "commit_store": (17, 3, True, False),
    "prepare_retrieve": (18, 2, True, False),
    "commit_retrieve": (19, 2, True, False),
    "clear": (20, 1, False, False),
    "get_chunk_size": (21, 0, True, False),
    "ping": (22, 1, True, False),
    "noop": (24, 0, True, False),
}


def test_the_operations_of_056() -> None:
    table = {
        op.value: (row.id, len(row.payload), row.result is not None, row.pending)
        for op, row in V056.ops.items()
    }
    assert table == OPERATIONS_056


def test_every_operation_has_traits() -> None:
    assert set(TRAITS) == set(Op)


def test_who_takes_and_gives_locks() -> None:
    assert {op.value for op, traits in TRAITS.items() if traits.takes_locks} == {"lookup"}
    giving = {op.value for op, traits in TRAITS.items() if traits.gives_locks}
    assert giving == {"retrieve", "free_lookup_locks", "commit_retrieve"}


def test_what_may_be_sent_twice_and_what_moves_data() -> None:
    once = {op.value for op, traits in TRAITS.items() if not traits.idempotent}
    assert once == {
        "retrieve",
        "lookup",
        "query_prefetch_status",
        "wait_prefetch_status",
        "free_lookup_locks",
        "prepare_store",
        "commit_store",
        "prepare_retrieve",
        "commit_retrieve",
    }
    moving = {op.value for op, traits in TRAITS.items() if traits.moves_data}
    assert moving == {"store", "retrieve", "commit_store", "prepare_retrieve"}


def test_an_id_names_one_operation() -> None:
    for dialect in DIALECTS:
        ids = [row.id for row in dialect.ops.values()]
        assert len(set(ids)) == len(ids)


def test_what_else_056_says() -> None:
    assert V056.op_names
    assert V056.null_block_id == 0
    assert V056.key_fields[-2:] == ("request_configs", "num_kv_readers")


def test_a_release_has_one_dialect() -> None:
    assert known_releases() == ("0.5.6",)
    assert dialect_of("0.5.6") is V056


@pytest.mark.parametrize("release", ["", "0.5.5", "0.5.7", "0.5.6rc1", "v0.5.6", "0.5.60", "\n"])
def test_a_release_that_is_not_pinned_is_not_guessed(release: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        dialect_of(release)
    words = f"server release {release!r} is not known, expected one of 0.5.6"
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.6-g3e11e108", "0.5.6"),
        ("0.5.6", "0.5.6"),
        ("v0.5.6", "0.5.6"),
        (" 0.5.6\n", "0.5.6"),
        ("0.5.6+cu12", "0.5.6"),
        ("0.5.7rc3-gabc", "0.5.7rc3"),
        ("0.5.7.dev12+gabc", "0.5.7.dev12"),
        ("0.5.6.post1", "0.5.6.post1"),
        ("0.4.15", "0.4.15"),
        ("", ""),
        ("0.5", ""),
        ("0.5.6.7", ""),
        ("0.5.6 extra", ""),
        ("0.5.6-a\nb", ""),
        ("unknown", ""),
        ("0.5.6beta", ""),
        ("00000.5.6", ""),
        ("version 0.5.6", ""),
    ],
)
def test_the_release_in_a_version_text(version: str, release: str) -> None:
    assert release_of(version) == release
