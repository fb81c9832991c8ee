"""The HTTP API's shapes, as the real 0.5.6 answers them, and what is refused."""

from typing import Any

import pytest

from protocol import httpapi
from protocol.errors import RemoteProtocolError
from protocol.health import Health
from protocol.httpapi import ServerStatus

MD5_A = "d41d8cd98f00b204e9800998ecf8427e"
MD5_B = "900150983cd24fb0d6963f7d28e17f72"
CHECKSUMS: dict[str, Any] = {
    "status": "success",
    "chunk_size": 16,
    "num_chunks": 2,
    "chunk_checksums": [MD5_A, MD5_B],
    "layerwise": False,
    "block_id_ranges": [[1, 4], 9],
}
STATUS: dict[str, Any] = {
    "is_healthy": True,
    "chunk_size": 256,
    "active_sessions": 3,
    "storage_manager": {
        "l1_manager": {"read_locked_count": 2, "write_locked_count": 1, "total_object_count": 9}
    },
    "cache_context_meta": {"1000": {"world_size": 1}, "-7": {}},
    "registered_non_cuda_instance_ids": [5, 6],
}


def test_the_paths_of_056() -> None:
    paths = {name: value for name, value in vars(httpapi).items() if name.endswith("_PATH")}
    assert paths == {
        "HEALTH_PATH": "/healthcheck",
        "VERSION_PATH": "/version",
        "STATUS_PATH": "/status",
        "CONFIG_PATH": "/config",
        "CHECKSUMS_PATH": "/cache/checksums",
        "CLEAR_PATH": "/cache/clear",
        "OBJECTS_PATH": "/cache/objects",
        "METRICS_PATH": "/metrics",
    }


def test_the_body_of_a_deletion() -> None:
    body = httpapi.delete_body(hashes=[b"\x08\xff"], model_name="m", world_size=2, rank=1)
    assert body == {
        "tier": "l1",
        "force": False,
        "keys": [
            {
                "chunk_hash_hex": "08ff",
                "model_name": "m",
                "kv_rank": 0x02010201,
                "object_group_id": 0,
                "cache_salt": "",
            }
        ],
    }


def test_what_a_deletion_answers() -> None:
    assert httpapi.parse_deleted({"deleted": 1, "skipped": 2, "ok": True}) == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"deleted": 1, "skipped": 0, "ok": False, "error": "x"},
        {"deleted": 1, "skipped": 0, "ok": 1},
        {"deleted": "1", "skipped": 0, "ok": True},
        {"deleted": 1, "ok": True},
        {"deleted": -1, "skipped": 0, "ok": True},
    ],
)
def test_bad_answers_to_a_deletion(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        httpapi.parse_deleted(answer)


def test_the_body_of_a_checksum_request_counts_in_blocks() -> None:
    body = httpapi.checksums_body(block_ids=(3, 1), blocks_per_chunk=16, instance_id=7)
    expected = {"block_ids": [3, 1], "chunk_size": 16, "instance_id": 7, "layerwise": False}
    assert body == expected
    assert type(body["block_ids"]) is list


def test_checksums() -> None:
    assert httpapi.parse_checksums(CHECKSUMS, chunks=2) == (MD5_A, MD5_B)
    assert httpapi.parse_checksums({**CHECKSUMS, "chunk_checksums": []}, chunks=0) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "error"}, 'expected a map with status "success"'),
        ({"status": None}, 'expected a map with status "success"'),
        ({"chunk_checksums": None}, "got None, expected 2 chunk_checksums"),
        ({"chunk_checksums": {"layer_0": [MD5_A]}}, "expected 2 chunk_checksums"),
        ({"chunk_checksums": [MD5_A]}, "expected 2 chunk_checksums"),
        ({"chunk_checksums": [MD5_A, MD5_B, MD5_A]}, "expected 2 chunk_checksums"),
        ({"chunk_checksums": [MD5_A, None]}, "got None, expected an MD5 in lower-case hex"),
        (
            {"chunk_checksums": [MD5_A.upper(), MD5_B]},
            f"got '{MD5_A.upper()}', expected an MD5 in lower-case hex",
        ),
        ({"chunk_checksums": [MD5_A, MD5_B + "\n"]}, "expected an MD5 in lower-case hex"),
        ({"chunk_checksums": [MD5_A, MD5_B[1:]]}, "expected an MD5 in lower-case hex"),
    ],
)
def test_checksums_that_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        httpapi.parse_checksums({**CHECKSUMS, **change}, chunks=2)
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize("answer", [None, [], "success", 1, {"detail": "no such instance"}])
def test_no_checksums_at_all(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError, match=r'expected a map with status "success"$'):
        httpapi.parse_checksums(answer, chunks=1)


def test_the_version() -> None:
    assert httpapi.parse_version("0.5.6-g3e11e108") == "0.5.6-g3e11e108"
    for length in (1, 200):
        assert httpapi.parse_version("x" * length) == "x" * length


@pytest.mark.parametrize("answer", [None, "", "x" * 201, 56, ["0.5.6"], {"version": "0.5.6"}])
def test_a_version_that_is_refused(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError, match=r"expected a version string$"):
        httpapi.parse_version(answer)


def test_a_configuration_is_shown_without_its_secrets() -> None:
    answer = {"mp": {"port": 5555}, "l2": [{"url": "redis://u:p@h:1", "api_key": "k"}]}
    assert httpapi.parse_configuration(answer) == {
        "mp": {"port": 5555},
        "l2": [{"url": "redis://***@h:1", "api_key": "***"}],
    }
    refused: list[Any] = [None, [], "x", 1]
    for wrong in refused:
        with pytest.raises(RemoteProtocolError, match="a map"):
            httpapi.parse_configuration(wrong)


def test_the_transfer_mode() -> None:
    config = {"mp": {"supported_transfer_mode": "engine_driven", "port": 5555}, "http": {}}
    assert httpapi.parse_transfer_mode(config) == "engine_driven"


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"mp": None}, {"mp": "auto"}, {"mp": {}}]
    + [{"mp": {"supported_transfer_mode": mode}} for mode in (None, 1, ["auto"])],
)
def test_a_transfer_mode_that_is_refused(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError, match=r"expected a map with mp\.supported"):
        httpapi.parse_transfer_mode(answer)


def test_the_status() -> None:
    assert httpapi.parse_status(STATUS) == ServerStatus(
        chunk_size=256,
        active_sessions=3,
        read_locked=2,
        write_locked=1,
        handle_instances=frozenset({1000, -7}),
        engine_instances=frozenset({5, 6}),
        health=Health(said=1),
    )


def test_a_server_without_one_mode_lists_no_instances_of_it() -> None:
    status = {k: v for k, v in STATUS.items() if k != "registered_non_cuda_instance_ids"}
    assert httpapi.parse_status(status).engine_instances == frozenset()
    status = {k: v for k, v in STATUS.items() if k != "cache_context_meta"}
    assert httpapi.parse_status(status).handle_instances == frozenset()


@pytest.mark.parametrize("size", [0, -1, 1 << 63, 10**400, 0.5, "1", None])
def test_a_size_that_no_memory_has_is_none(size: Any) -> None:
    """One that no float holds was a traceback once a sequence failed."""
    manager = {"memory_total_bytes": size, "memory_used_bytes": size}
    storage = {"l1_manager": {**STATUS["storage_manager"]["l1_manager"], **manager}}
    status = httpapi.parse_status({**STATUS, "storage_manager": storage})
    assert (status.l1_bytes, status.l1_used) == (0, 0)


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 10**20, -(10**19), 10**400])
def test_an_instance_id_is_any_integer(number: int) -> None:
    """Ids of others are chosen by others: a run must not be unproven for their length."""
    status = {
        **STATUS,
        "cache_context_meta": {str(number): {}},
        "registered_non_cuda_instance_ids": [number],
    }
    assert httpapi.parse_status(status).handle_instances == {number}
    assert httpapi.parse_status(status).engine_instances == {number}


@pytest.mark.parametrize(
    ("liveness", "seconds"),
    [
        ({"reap_timeout_seconds": 120.0}, 120.0),
        ({"reap_timeout_seconds": 2}, 2.0),
        ({"reap_timeout_seconds": 0}, 0.0),
        ({"reap_timeout_seconds": -1}, 0.0),
        ({"reap_timeout_seconds": True}, 0.0),
        ({"reap_timeout_seconds": float("nan")}, 0.0),
        ({"reap_timeout_seconds": 10**400}, 0.0),
        ({"reap_timeout_seconds": "120"}, 0.0),
        ({}, 0.0),
        (None, 0.0),
    ],
)
def test_how_long_a_worker_may_be_silent(liveness: Any, seconds: float) -> None:
    assert httpapi.parse_status(STATUS).reap_timeout_s == 0
    status = {**STATUS, "worker_liveness": liveness}
    assert httpapi.parse_status(status).reap_timeout_s == seconds


L1_GOOD = {"read_locked_count": 0, "write_locked_count": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chunk_size": None}, "chunk_size is None, expected a count"),
        ({"chunk_size": -1}, "chunk_size is -1, expected a count"),
        ({"chunk_size": 256.0}, "chunk_size is 256.0, expected a count"),
        ({"active_sessions": True}, "active_sessions is True, expected a count"),
        ({"storage_manager": None}, "storage_manager is None, expected a map"),
        ({"storage_manager": {"l1_manager": []}}, "l1_manager is [], expected a map"),
        (
            {"storage_manager": {"l1_manager": {**L1_GOOD, "read_locked_count": "0"}}},
            "read_locked_count is '0', expected a count",
        ),
        (
            {"storage_manager": {"l1_manager": {"read_locked_count": 0}}},
            "write_locked_count is None, expected a count",
        ),
        ({"cache_context_meta": []}, "cache_context_meta is [], expected a map"),
        ({"cache_context_meta": {"x": {}}}, "cache_context_meta has the key 'x', no id"),
        ({"cache_context_meta": {"": {}}}, "cache_context_meta has the key '', no id"),
        ({"cache_context_meta": {"1.5": {}}}, "cache_context_meta has the key '1.5', no id"),
        (
            {"cache_context_meta": {"\u0663": {}}},
            "cache_context_meta has the key '\\u0663', no id",
        ),
        (
            {"cache_context_meta": {"1" * 5000: {}}},
            f"cache_context_meta has the key '{'1' * 56}..., no id",
        ),
        (
            {"registered_non_cuda_instance_ids": None},
            "registered_non_cuda_instance_ids is not a list of ids",
        ),
        (
            {"registered_non_cuda_instance_ids": ["5"]},
            "registered_non_cuda_instance_ids is not a list of ids",
        ),
    ],
)
def test_a_status_that_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        httpapi.parse_status({**STATUS, **change})
    assert str(caught.value) == f"/status: {words}"


@pytest.mark.parametrize("answer", [None, [], "ok", 1])
def test_no_status_at_all(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="storage_manager is None, expected a map"):
        httpapi.parse_status(answer)


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def test_an_answer_that_nests_deeper_than_the_stack() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        httpapi.parse_version(nested(5000))
    words = f"got {'[' * 57}..., expected a version string"
    assert str(caught.value) == words
