"""The shapes of the server's HTTP API (0.4.1 to 0.5.7rc2): paths, bodies, answers; no HTTP.

Parsers take decoded JSON of any shape and return a value or raise RemoteProtocolError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import RemoteProtocolError
from protocol.health import NOTHING_SAID, Health, read_health
from protocol.secrets import without_secrets
from protocol.values import clip, is_int, is_int_list, refuse

HEALTH_PATH = "/healthcheck"
VERSION_PATH = "/version"
STATUS_PATH = "/status"
CONFIG_PATH = "/config"
CHECKSUMS_PATH = "/cache/checksums"
CLEAR_PATH = "/cache/clear"
OBJECTS_PATH = "/cache/objects"
METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoutes:
    """Where one generation of the server has what; "" means that it has none.

    checksums_by_query: GET with a query string in place of POST with a JSON body.
    """

    health: str = HEALTH_PATH
    version: str = VERSION_PATH
    status: str = STATUS_PATH
    config: str = CONFIG_PATH
    clear: str = CLEAR_PATH
    checksums: str = CHECKSUMS_PATH
    checksums_by_query: bool = False


HTTP_051 = HttpRoutes()
"""0.5.1 and later."""

HTTP_045 = HttpRoutes(
    config="/conf", clear="/clear-cache", checksums="/kvcache/check", checksums_by_query=True
)
"""0.4.5 to 0.5.0."""

HTTP_041 = HttpRoutes(
    health="/api/healthcheck",
    version="",
    status="/api/status",
    config="",
    clear="/api/clear-cache",
    checksums="",
)
"""0.4.1 to 0.4.4."""

_MAX_NUMBER = 1e9
"""More than any share, and than any time in seconds that somebody waits."""

_MAX_BYTES = 1 << 62

MAX_TOKEN_CHARS = 4096
_TOKEN = re.compile(rf"[!-~]{{1,{MAX_TOKEN_CHARS}}}")
_MD5 = re.compile(r"[0-9a-f]{32}")
_INTEGER = re.compile(r"-?[0-9]+")


def token_problem(token: str) -> str:
    """Say why a bearer token cannot stand in a header, without showing it, or "" if it can."""
    if _TOKEN.fullmatch(token):
        return ""
    return (
        f"the HTTP token must be 1 to {MAX_TOKEN_CHARS} printable ASCII characters without "
        "spaces (it is not shown here)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What `/status` says about residue, and about the server's own state (0.5.6).

    `handle_instances` and `engine_instances` are the registered instance ids of each mode.
    """

    chunk_size: int
    active_sessions: int
    read_locked: int
    write_locked: int
    handle_instances: frozenset[int]
    engine_instances: frozenset[int]
    l1_bytes: int = 0
    """The size of L1, or 0 if the server does not say."""
    reap_timeout_s: float = 0.0
    """The silence after which a worker that has PINGed is given up; 0: never, or it is not said."""
    l1_used: int = 0
    l1_watermark: float = 0.0
    """The used share of L1 from which it is emptied, or 0 if the server does not say."""
    prefetches: int = 0
    """Prefetch jobs that are under way or whose result nobody has fetched, if it is said."""
    health: Health = NOTHING_SAID


def kv_rank(*, world_size: int, rank: int) -> int:
    """Return the number that names a rank of a world in object names (0.5.2 to 0.5.6)."""
    return world_size << 24 | rank << 16 | world_size << 8 | rank


def delete_body(
    *,
    hashes: Sequence[bytes],
    model_name: str,
    world_size: int,
    rank: int = 0,
    object_group: int = 0,
    cache_salt: str = "",
    force: bool = False,
) -> dict[str, Any]:
    """Return the body of DELETE /cache/objects that removes chunks of one rank from L1 (0.5.2+).

    Without `force` objects that are locked stay.
    """
    return {
        "tier": "l1",
        "force": force,
        "keys": [
            {
                "chunk_hash_hex": chunk_hash.hex(),
                "model_name": model_name,
                "kv_rank": kv_rank(world_size=world_size, rank=rank),
                "object_group_id": object_group,
                "cache_salt": cache_salt,
            }
            for chunk_hash in hashes
        ],
    }


def parse_deleted(answer: Any) -> tuple[int, int]:
    """Return (deleted, left because they are locked) from an answer of DELETE /cache/objects."""
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        raise refuse("a map with ok true", answer)
    deleted, skipped = answer.get("deleted"), answer.get("skipped")
    if not is_int(deleted) or not is_int(skipped) or deleted < 0 or skipped < 0:
        raise refuse("counts of deleted and skipped objects", answer)
    return deleted, skipped


def checksums_body(
    *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
) -> dict[str, Any]:
    """Return the body of POST /cache/checksums; its `chunk_size` counts blocks (0.5.1+)."""
    return {
        "block_ids": list(block_ids),
        "chunk_size": blocks_per_chunk,
        "instance_id": instance_id,
        "layerwise": False,
    }


def checksums_query(
    *, block_ids: Sequence[int], blocks_per_chunk: int, instance_id: int
) -> dict[str, str]:
    """Return the query of GET /kvcache/check (0.4.5 to 0.5.0)."""
    return {
        "block_ids": ",".join(map(str, block_ids)),
        "chunk_size": str(blocks_per_chunk),
        "instance_id": str(instance_id),
        "layerwise": "false",
    }


def parse_checksums(answer: Any, *, chunks: int) -> tuple[str, ...]:
    """Return the MD5 hex digests, one a chunk, from an answer of /cache/checksums."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise refuse('a map with status "success"', answer)
    digests = answer.get("chunk_checksums")
    if not isinstance(digests, list) or len(digests) != chunks:
        raise refuse(f"{chunks} chunk_checksums", digests)
    for digest in digests:
        if not isinstance(digest, str) or not _MD5.fullmatch(digest):
            raise refuse("an MD5 in lower-case hex", digest)
    return tuple(digests)


def parse_version(answer: Any) -> str:
    """Return the version text, such as `0.5.6-g3e11e108`."""
    if not isinstance(answer, str) or not 0 < len(answer) <= 200:
        raise refuse("a version string", answer)
    return answer


def parse_transfer_mode(answer: Any) -> str:
    """Return `mp.supported_transfer_mode` of /config: auto, lmcache_driven or engine_driven.

    0.4.6 calls it `transfer_mode`, and the modes of 0.4.6 and 0.4.7 are auto, gpu and non_gpu.
    """
    section = answer.get("mp") if isinstance(answer, dict) else None
    for name in ("supported_transfer_mode", "transfer_mode"):
        mode = section.get(name) if isinstance(section, dict) else None
        if isinstance(mode, str):
            return mode
    raise refuse("a map with mp.supported_transfer_mode", answer)


def parse_configuration(answer: Any) -> dict[str, Any]:
    """Return what /config says the server was started with, without its secrets."""
    if not isinstance(answer, dict):
        raise refuse("a map", answer)
    shown: dict[str, Any] = without_secrets(answer)
    return shown


def parse_status(answer: Any) -> ServerStatus:
    """Read the parts of /status that an audit needs."""
    storage = _map_at(answer, "storage_manager")
    manager = _map_at(storage, "l1_manager")
    return ServerStatus(
        chunk_size=_count_at(answer, "chunk_size"),
        active_sessions=_count_at(answer, "active_sessions"),
        read_locked=_count_at(manager, "read_locked_count"),
        write_locked=_count_at(manager, "write_locked_count"),
        handle_instances=_handle_instances(answer),
        engine_instances=_engine_instances(answer),
        l1_bytes=_bytes_at(manager, "memory_total_bytes"),
        reap_timeout_s=_number_at(answer.get("worker_liveness"), "reap_timeout_seconds"),
        l1_used=_bytes_at(manager, "memory_used_bytes"),
        l1_watermark=_number_at(storage.get("l1_eviction_controller"), "trigger_watermark"),
        prefetches=_bytes_at(answer, "active_prefetch_jobs"),
        health=read_health(answer),
    )


def _map_at(holder: Any, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"/status: {name} is {clip(value)}, expected a map")
    return value


def _count_at(holder: dict[str, Any], name: str) -> int:
    value = holder.get(name)
    if not is_int(value) or value < 0:
        raise RemoteProtocolError(f"/status: {name} is {clip(value)}, expected a count")
    return value


def _bytes_at(holder: dict[str, Any], name: str) -> int:
    """Return a number, of bytes for one, or 0 if there is none, or one that no memory has."""
    size = holder.get(name)
    return size if is_int(size) and 0 < size <= _MAX_BYTES else 0


def _number_at(holder: Any, name: str) -> float:
    """Return a positive number, or 0 if there is none."""
    number = holder.get(name) if isinstance(holder, dict) else None
    if not is_int(number) and not isinstance(number, float):
        return 0.0
    # Neither NaN nor an integer that no float holds.
    return float(number) if 0 < number <= _MAX_NUMBER else 0.0


def _handle_instances(answer: dict[str, Any]) -> frozenset[int]:
    # Absent on a server that serves engine_driven alone.
    present = "cache_context_meta" in answer
    names = _map_at(answer, "cache_context_meta") if present else {}
    return frozenset(_instance_id(name) for name in names)


def _instance_id(name: str) -> int:
    """Read an instance id that is a key of a map: any integer that JSON could write."""
    if _INTEGER.fullmatch(name):
        try:
            return int(name)
        except ValueError:  # more digits than the interpreter converts, as in any JSON number
            pass
    raise RemoteProtocolError(f"/status: cache_context_meta has the key {clip(name)}, no id")


def _engine_instances(answer: dict[str, Any]) -> frozenset[int]:
    # Absent on a server that serves lmcache_driven alone.
    ids = answer.get("registered_non_cuda_instance_ids", [])
    if not is_int_list(ids):
        raise RemoteProtocolError("/status: registered_non_cuda_instance_ids is not a list of ids")
    return frozenset(ids)
