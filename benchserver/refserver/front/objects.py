"""`/cache/objects`: single chunk objects by name, as the real server has it (0.5.6).

GET lists an L2 tier, and answers 503 for one that cannot be listed; neither fs:// nor mock:// can,
as with the real server's tiers of these names.  DELETE removes objects from L1; from L2 no tier
here can, which the answer says as the real server's does when its tier fails.
Where the real server takes "1" or 1.0 for 1, this one answers 422.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from benchserver.refserver.front.badrequest import BadRequestError, unprocessable
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.store.cache import Cache
from protocol.httpapi import kv_rank
from protocol.keys import FORBIDDEN_IN_MODEL_NAME, FORBIDDEN_IN_SALT, MAX_SALT_CHARS
from protocol.values import clip, is_int

MAX_KEYS = 10_000
"""More in one request are refused (0.5.6)."""

DEFAULT_PAGE_SIZE = 500
MAX_PAGE_SIZE = 5000
TIERS = ("l1", "l2", "all")
_HEX = re.compile(r"(?:\s*[0-9a-fA-F]{2})*\s*", re.ASCII)
_PAGE_SIZE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """An object as HTTP names it; the rank and the world size are packed into one number."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    group: int
    salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What DELETE /cache/objects asks for."""

    names: tuple[ObjectName, ...]
    tier: str
    force: bool
    adapter: str | None


def parse_deletion(body: Any) -> Deletion:
    """Return what a decoded body asks for; raises BadRequestError with 422 or 400."""
    if not isinstance(body, dict):
        raise unprocessable("the body is not a JSON object")
    keys, tier = body.get("keys"), body.get("tier", "l2")
    force, adapter = body.get("force", False), body.get("adapter")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise unprocessable(f"keys is {clip(keys)}, expected a list of objects")
    check_tier(tier)
    if not isinstance(force, bool):
        raise unprocessable(f"force is {clip(force)}, expected a bool")
    if adapter is not None and not isinstance(adapter, str):
        raise unprocessable(f"adapter is {clip(adapter)}, expected a string")
    for index, key in enumerate(keys):
        _check_types(index, key)
    if len(keys) > MAX_KEYS:
        raise BadRequestError(400, f"{len(keys)} keys, expected at most {MAX_KEYS} in one request")
    names = tuple(_name(index, key) for index, key in enumerate(keys))
    return Deletion(names=names, tier=tier, force=force, adapter=adapter)


def check_tier(tier: Any) -> None:
    """Raise BadRequestError for a name that is not a tier's."""
    if tier not in TIERS:
        raise unprocessable(f"tier is {clip(tier)}, expected l1, l2 or all")


def delete(cache: Cache, tiers: Sequence[str], wanted: Deletion, now_ns: int) -> dict[str, Any]:
    """Delete from the tiers that are asked for; `tiers` are the names of those of L2.

    Raises BadRequestError if there is no such L2 tier; what had to go from L1 is gone then (0.5.6).
    """
    deleted = skipped = 0
    if wanted.tier != "l2":
        keys = _stored(cache, wanted.names)
        deleted, skipped = cache.delete(keys, force=wanted.force, now_ns=now_ns)
    answer: dict[str, Any] = {"deleted": deleted, "skipped": skipped, "ok": True}
    if wanted.tier != "l1":
        name = resolve_tier(tiers, wanted.adapter)
        if wanted.names:
            error = f"L2 tier {name} of the embedded server cannot delete single objects"
            answer = {**answer, "ok": False, "error": error}
    return answer


def refuse_listing(tiers: Sequence[str], query: Mapping[str, str]) -> NoReturn:
    """Raise the BadRequestError that answers GET /cache/objects: nothing here can be listed."""
    tier, size = query.get("tier", "l2"), query.get("page_size", str(DEFAULT_PAGE_SIZE))
    check_tier(tier)
    if not _PAGE_SIZE.fullmatch(size) or not 1 <= int(size) <= MAX_PAGE_SIZE:
        raise unprocessable(f"page_size is {clip(size)}, expected 1 to {MAX_PAGE_SIZE}")
    if tier != "l2":
        raise BadRequestError(400, f"tier {tier} cannot be listed, only l2")
    name = resolve_tier(tiers, query.get("adapter"))
    raise BadRequestError(503, f"L2 tier {name} of the embedded server cannot be listed")


def resolve_tier(tiers: Sequence[str], adapter: str | None) -> str:
    """Return the name of the L2 tier that is meant; None: the nearest."""
    if not tiers:
        raise BadRequestError(503, "there is no L2 tier")
    if adapter is None:
        return tiers[0]
    if adapter not in tiers:
        raise BadRequestError(
            404, f"no L2 tier is named {clip(adapter)}, known: {', '.join(tiers)}"
        )
    return adapter


def _stored(cache: Cache, names: Sequence[ObjectName]) -> list[ObjectKey]:
    """Return the keys of the named objects that L1 has."""
    wanted = set(names)
    return [key for key in cache.keys() if _name_of(key) in wanted]  # noqa: SIM118 - no mapping


def _name_of(key: ObjectKey) -> ObjectName:
    return ObjectName(
        chunk_hash=key.chunk_hash,
        model_name=key.model_name,
        kv_rank=kv_rank(world_size=key.world_size, rank=key.rank),
        group=key.group,
        salt=key.salt,
    )


def _check_types(index: int, key: Mapping[str, Any]) -> None:
    for name in ("chunk_hash_hex", "model_name"):
        if not isinstance(key.get(name), str):
            raise unprocessable(f"keys[{index}].{name} is {clip(key.get(name))}, expected text")
    if not isinstance(key.get("cache_salt", ""), str):
        raise unprocessable(f"keys[{index}].cache_salt is {clip(key['cache_salt'])}, not text")
    for name, default in (("kv_rank", None), ("object_group_id", 0)):
        value = key.get(name, default)
        if not is_int(value):
            raise unprocessable(f"keys[{index}].{name} is {clip(value)}, expected an integer")


def _name(index: int, key: Mapping[str, Any]) -> ObjectName:
    digest, model_name, salt = key["chunk_hash_hex"], key["model_name"], key.get("cache_salt", "")
    group = key.get("object_group_id", 0)
    problem = ""
    if not _HEX.fullmatch(digest):
        problem = f"chunk_hash_hex is {clip(digest)}, expected hexadecimal digits"
    elif set(model_name) & set(FORBIDDEN_IN_MODEL_NAME):
        problem = f"model_name is {clip(model_name)}, which holds a character that it must not"
    elif set(salt) & set(FORBIDDEN_IN_SALT) or len(salt) > MAX_SALT_CHARS:
        problem = f"cache_salt is {clip(salt)}, which is too long or holds what it must not"
    elif group < 0:
        problem = f"object_group_id is {clip(group)}, expected 0 or more"
    if problem:
        raise BadRequestError(400, f"keys[{index}]: {problem}")
    return ObjectName(
        chunk_hash=bytes.fromhex(digest),
        model_name=model_name,
        kv_rank=key["kv_rank"],
        group=group,
        salt=salt,
    )
