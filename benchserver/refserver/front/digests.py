"""Digests of a client's blocks over HTTP: what is asked for, and the answer.

The real server asks by POST /cache/checksums, releases before 0.5.1 by GET /kvcache/check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from benchserver.refserver.core import Core
from benchserver.refserver.front.badrequest import BadRequestError, unprocessable
from benchserver.refserver.instance import Instance
from benchserver.refserver.pages import checksums
from benchserver.refserver.refusal import RefusalError
from protocol.values import clip, is_int, is_int_list

MAX_QUERY_IDS = 1 << 20

_RANGE = re.compile(r"\[([0-9]{1,9}),([0-9]{1,9})\]|([0-9]{1,9})")
_QUERY_IDS = re.compile(rf"(?:{_RANGE.pattern})(?:,(?:{_RANGE.pattern}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestQuestion:
    """Which digests a request asks for."""

    block_ids: list[int]
    blocks_per_chunk: int
    instance_id: int
    layerwise: bool


def question_of(body: Mapping[str, Any]) -> DigestQuestion:
    """Read the body of POST /cache/checksums; raises BadRequestError."""
    block_ids, size = body.get("block_ids", []), body.get("chunk_size", 0)
    instance_id, layerwise = body.get("instance_id", 0), body.get("layerwise", False)
    if not is_int_list(block_ids) or not is_int(size) or not is_int(instance_id):
        raise unprocessable("block_ids must be integers, chunk_size and instance_id an integer")
    if not isinstance(layerwise, bool):
        raise unprocessable("layerwise must be a bool")
    return DigestQuestion(
        block_ids=block_ids, blocks_per_chunk=size, instance_id=instance_id, layerwise=layerwise
    )


def question_in_query(query: Mapping[str, str]) -> DigestQuestion:
    """Read `block_ids=0,[2,5],8&chunk_size=N&instance_id=N&layerwise=BOOL`; ranges are closed.

    Raises BadRequestError.
    """
    text = query.get("block_ids", "").replace(" ", "")
    if text and not _QUERY_IDS.fullmatch(text):
        raise BadRequestError(400, "Invalid block_ids format")
    block_ids: list[int] = []
    for first, last, single in _RANGE.findall(text):
        ids = range(int(first), int(last) + 1) if not single else (int(single),)
        if len(block_ids) + len(ids) > MAX_QUERY_IDS:
            raise BadRequestError(400, f"more than {MAX_QUERY_IDS} block_ids")
        block_ids += ids
    numbers = [query.get(name, "0") for name in ("chunk_size", "instance_id")]
    if not all(re.fullmatch(r"-?[0-9]{1,19}", number) for number in numbers):
        raise unprocessable("chunk_size and instance_id must be integers")
    layerwise = query.get("layerwise", "false").lower()
    if layerwise not in ("true", "false", "1", "0"):
        raise unprocessable(f"layerwise is {clip(layerwise)}, expected true or false")
    return DigestQuestion(
        block_ids=block_ids,
        blocks_per_chunk=int(numbers[0]),
        instance_id=int(numbers[1]),
        layerwise=layerwise in ("true", "1"),
    )


async def digests_document(core: Core, asked: DigestQuestion) -> Mapping[str, Any]:
    """Return the answer to such a question; raises BadRequestError."""
    instance = _instance_of(core, asked.instance_id)
    block_ids, size = asked.block_ids, asked.blocks_per_chunk
    if not block_ids:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "block_ids is required")
    if size <= 0:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "chunk_size must be positive")
    if not checksums.blocks_in_range(instance.num_blocks, block_ids):
        raise BadRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "a block id is out of range")
    digest = checksums.layerwise_digests if asked.layerwise else checksums.aggregate_digests
    try:
        digests = await instance.digests(digest, block_ids, size)
    except RefusalError as error:
        core.journal.line(f"digests of instance {asked.instance_id}: {error}")
        raise BadRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error
    return {
        "status": "success",
        "chunk_size": size,
        "num_chunks": -(-len(block_ids) // size),
        "chunk_checksums": digests,
        "layerwise": asked.layerwise,
        "block_id_ranges": checksums.id_ranges(block_ids),
    }


def _instance_of(core: Core, instance_id: int) -> Instance:
    if not core.config.serves_mapped:
        raise BadRequestError(
            HTTPStatus.NOT_IMPLEMENTED, "checksums need a mode that maps client tensors"
        )
    instance = core.registry.mapped.get(instance_id)
    if instance is None:
        raise BadRequestError(
            HTTPStatus.NOT_FOUND, f"instance_id {clip(instance_id)} is not registered"
        )
    return instance
