"""The table of 0.5.6 against the numbers of its release, and which release speaks what."""

import pytest

from protocol.dialects import DIALECTS, V056, dialect_of, known_releases, release_of
from protocol.errors import LocalProtocolError
from protocol.ops import Op

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
    "report_block_allocation": (23, 3, False, False),
    "noop": (24, 0, True, False),
    "get_experimental": (32, 0, True, False),
}


def test_the_operations_of_056() -> None:
    table = {
        op.value: (row.id, len(row.payload), row.result is not None, row.pending)
        for op, row in V056.ops.items()
    }
    assert table == OPERATIONS_056


def test_an_id_names_one_operation() -> None:
    for dialect in DIALECTS:
        ids = [row.id for row in dialect.ops.values()]
        assert len(set(ids)) == len(ids)


def test_what_else_056_says() -> None:
    assert V056.op_names
    assert V056.null_block_id == 0
    assert V056.key_fields[-2:] == ("request_configs", "num_kv_readers")


def test_a_release_has_one_dialect() -> None:
    releases = known_releases()
    assert releases[:4] == ("0.5.7rc2", "0.5.6", "0.5.5", "0.5.4")
    assert releases[-2:] == ("0.4.2", "0.4.1")
    assert len(set(releases)) == len(releases) == 15
    assert dialect_of("0.5.6") is V056
    assert dialect_of("0.5.2") is dialect_of("0.5.1")


@pytest.mark.parametrize("release", ["", "0.5.8", "0.5.7", "0.5.6rc1", "v0.5.6", "0.5.60", "\n"])
def test_a_release_that_is_not_pinned_is_not_guessed(release: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        dialect_of(release)
    known = ", ".join(known_releases())
    words = f"server release {release!r} is not known, expected one of {known}"
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


def ids(release: str) -> dict[str, int]:
    return {op.name: row.id for op, row in dialect_of(release).ops.items()}


@pytest.mark.parametrize(
    ("releases", "numbers"),
    [
        ("0.4.1", "STORE 3 LOOKUP 5 FREE_LOOKUP_LOCKS 7 CLEAR 9 GET_CHUNK_SIZE 10 NOOP 11"),
        ("0.4.2", "END_SESSION 8 CLEAR 9 GET_CHUNK_SIZE 10 PING 11 NOOP 12"),
        (
            "0.4.3 0.4.4 0.4.5",
            "FREE_LOOKUP_LOCKS 8 END_SESSION 9 CLEAR 10 PING 12 REPORT_BLOCK_ALLOCATION 13 NOOP 14",
        ),
        (
            "0.4.6",
            "REGISTER_ENGINE_DRIVEN 10 PREPARE_STORE 11 COMMIT_RETRIEVE 14 CLEAR 15 "
            "REPORT_BLOCK_ALLOCATION 18 NOOP 19",
        ),
        (
            "0.4.7",
            "UNREGISTER_ENGINE_DRIVEN 11 COMMIT_RETRIEVE 15 CLEAR 16 PING 18 "
            "REPORT_BLOCK_ALLOCATION 19 NOOP 20",
        ),
        (
            "0.5.0 0.5.1 0.5.2",
            "WAIT_PREFETCH_STATUS 7 FREE_LOOKUP_LOCKS 9 CLEAR 17 "
            "REPORT_BLOCK_ALLOCATION 20 NOOP 21",
        ),
        (
            "0.5.3 0.5.4 0.5.5 0.5.6 0.5.7rc2",
            "STORE 6 RETRIEVE 7 LOOKUP 8 WAIT_PREFETCH_STATUS 10 FREE_LOOKUP_LOCKS 12 CLEAR 20 "
            "GET_CHUNK_SIZE 21 PING 22 REPORT_BLOCK_ALLOCATION 23 NOOP 24",
        ),
    ],
)
def test_operations_have_the_numbers_of_their_release(releases: str, numbers: str) -> None:
    words = numbers.split()
    expected = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    for release in releases.split():
        assert expected.items() <= ids(release).items()


def test_operations_that_a_release_lacks_have_no_number() -> None:
    assert "PING" not in ids("0.4.1")
    assert "REPORT_BLOCK_ALLOCATION" not in ids("0.4.2")
    assert "PREPARE_STORE" not in ids("0.4.5")
    assert "UNREGISTER_ENGINE_DRIVEN" not in ids("0.4.6")
    assert "WAIT_PREFETCH_STATUS" not in ids("0.4.7")


def test_pings_name_their_instance_where_servers_wait_for_them() -> None:
    pinging = {row.name for row in DIALECTS if row.pings_name_instances}
    assert {row.name for row in DIALECTS} - pinging == {f"0.4.{n}" for n in range(1, 8)}


@pytest.mark.parametrize(
    ("release", "count"),
    [("0.4.1", 4), ("0.4.3", 5), ("0.4.5", 6), ("0.4.6", 6), ("0.4.7", 7), ("0.5.7rc2", 7)],
)
def test_a_registration_has_the_arity_of_its_release(release: str, count: int) -> None:
    names = [f.name for f in dialect_of(release).ops[Op.REGISTER_KV_CACHE].payload]
    values = {name: name.upper() for name in (*names, "another")}
    arguments = dialect_of(release).arguments(Op.REGISTER_KV_CACHE, values)
    assert arguments == tuple(name.upper() for name in names)
    assert len(arguments) == count


def test_block_allocations_were_reported_without_a_sender_at_first() -> None:
    def fields(release: str) -> list[str]:
        return [f.name for f in dialect_of(release).ops[Op.REPORT_BLOCK_ALLOCATION].payload]

    assert fields("0.4.3") == ["records"]
    assert fields("0.4.4") == fields("0.5.7rc2") == ["instance_id", "model_name", "records"]


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(LocalProtocolError, match=r"^ping in 0\.5\.6 wants instance_id$"):
        V056.arguments(Op.PING, {})
    with pytest.raises(LocalProtocolError, match=r"^ping in 0\.4\.1 wants ping$"):
        dialect_of("0.4.1").arguments(Op.PING, {})
