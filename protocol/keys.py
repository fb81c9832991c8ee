"""The cache key: which token range of whose cache, and its wire form, a map by field name.

Identity on the server is (chunk hash, model_name, world_size, worker_id, cache_salt); the
request id and the number of readers are not part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.values import clip, is_int

MAX_SALT_CHARS = 128
"""The server refuses longer salts silently (0.4.4 to 0.5.6)."""

FORBIDDEN_IN_SALT = "@/\\\0"
FORBIDDEN_IN_MODEL_NAME = "@"
"""A STORE whose model name holds it is never answered (0.5.6)."""

MAX_TOKEN_ID = 2**32 - 1
"""Token ids are hashed as big-endian uint32; others are never answered (0.5.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """A range of whole chunks `[start, end)` (in tokens) of one token sequence.

    `token_ids` is the whole sequence from token 0, since chunk hashes are chained.
    `worker_id` is the KV rank, or None in a LOOKUP over all ranks of `world_size`.
    `num_kv_readers` is how many workers will RETRIEVE each object (0.5.5 and later, at least 1).
    """

    model_name: str
    world_size: int
    worker_id: int | None
    token_ids: Sequence[int]
    start: int
    end: int
    request_id: str
    cache_salt: str = ""
    num_kv_readers: int = 1


def model_name_problem(name: str) -> str:
    """Say why a server would never answer for this model name, or "" if it is fine."""
    if not name:
        return "a model name must not be empty"
    if not _is_text(name):
        return "a model name must be valid Unicode"
    bad = sorted(set(name) & set(FORBIDDEN_IN_MODEL_NAME))
    return f"a model name must not contain {' '.join(map(ascii, bad))}" if bad else ""


def _is_text(text: str) -> bool:
    """Tell whether a string can be sent: bytes from an environment may be no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def salt_problem(salt: str) -> str:
    """Say why a server would never answer for this cache salt, or "" if it is fine."""
    if len(salt) > MAX_SALT_CHARS:
        return f"a cache salt has at most {MAX_SALT_CHARS} characters, this one has {len(salt)}"
    if not _is_text(salt):
        return "a cache salt must be valid Unicode"
    bad = sorted(set(salt) & set(FORBIDDEN_IN_SALT))
    return f"a cache salt must not contain {' '.join(map(ascii, bad))}" if bad else ""


def key_to_wire(key: CacheKey, fields: Sequence[str]) -> dict[str, Any]:
    """Return the map that a client sends, with the given fields in this order.

    Raises LocalProtocolError for a model name, a salt or a number of readers that no server
    would answer.  Token ids and the range are the caller's to check: they are long, or depend
    on the operation.
    """
    problem = model_name_problem(key.model_name) or salt_problem(key.cache_salt)
    if problem:
        raise LocalProtocolError(problem)
    if "num_kv_readers" in fields and key.num_kv_readers < 1:
        raise LocalProtocolError(f"num_kv_readers must be at least 1, not {key.num_kv_readers}")
    values: dict[str, Any] = {
        "model_name": key.model_name,
        "world_size": key.world_size,
        "worker_id": key.worker_id,
        "token_ids": key.token_ids,
        "start": key.start,
        "end": key.end,
        "request_id": key.request_id,
        "cache_salt": key.cache_salt,
        "request_configs": None,
        "num_kv_readers": key.num_kv_readers,
    }
    if "token_bytes" in fields:
        values["token_bytes"] = _pack_tokens(key.token_ids)
    return {name: values[name] for name in fields}


def _pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Return tokens as big-endian uint32 (0.5.7)."""
    try:
        return struct.pack(f">{len(token_ids)}I", *token_ids)
    except struct.error as error:
        raise LocalProtocolError(f"a token id is out of range: {error}") from error


def _is_token_list(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in value)


def _unpack_tokens(packed: Any) -> list[int]:
    if not isinstance(packed, bytes) or len(packed) % 4:
        raise RemoteProtocolError(
            f"key.token_bytes: got {clip(packed)}, expected bytes, four a token"
        )
    return list(struct.unpack(f">{len(packed) // 4}I", packed))


_WIRE_CHECKS: Mapping[str, tuple[Any, str]] = {
    "model_name": (lambda v: isinstance(v, str), "a string"),
    "world_size": (is_int, "an integer"),
    "worker_id": (lambda v: v is None or is_int(v), "an integer or nil"),
    "token_ids": (_is_token_list, "an array of integers from 0 to 2^32-1"),
    "start": (is_int, "an integer"),
    "end": (is_int, "an integer"),
    "request_id": (lambda v: isinstance(v, str), "a string"),
    "cache_salt": (lambda v: isinstance(v, str) and not salt_problem(v), "a legal salt"),
    "num_kv_readers": (is_int, "an integer"),
}

_OPTIONAL_ON_WIRE: Mapping[str, Any] = {"cache_salt": "", "num_kv_readers": 0}


def key_from_wire(value: Any, known: Sequence[str] = ()) -> CacheKey:
    """Read a key of the fields `known` that a client sent; others are ignored, as servers do.

    Raises RemoteProtocolError for anything but a map with well-typed required fields.
    """
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"key: got {type(value).__name__}, expected a map")
    fields: dict[str, Any] = {}
    if "token_bytes" in known:
        value = {**value, "token_ids": _unpack_tokens(value.get("token_bytes"))}
    for name, (check, expected) in _WIRE_CHECKS.items():
        if name not in value and name not in _OPTIONAL_ON_WIRE:
            raise RemoteProtocolError(f"key: field {name} is missing")
        item = value.get(name, _OPTIONAL_ON_WIRE.get(name))
        if not check(item):
            raise RemoteProtocolError(f"key.{name}: got {clip(item)}, expected {expected}")
        fields[name] = item
    return CacheKey(**fields)
