"""GET and DELETE /cache/objects: names, tiers, locks and errors, as the real 0.5.6 has them."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.refserver.front.badrequest import BadRequestError
from benchserver.refserver.front.objects import (
    MAX_KEYS,
    ObjectName,
    delete,
    parse_deletion,
    refuse_listing,
)
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.store.cache import Cache
from benchserver.refserver.store.hashing import ROOT, ChunkNamer
from protocol.httpapi import OBJECTS_PATH, delete_body, kv_rank, parse_deleted
from tests.httpstage import CHUNK, MODEL, Engine, Site, engine_of, serving

KEY = {"chunk_hash_hex": "00" * 32, "model_name": "m", "kv_rank": 16777472}
"""kv_rank as the real server has it for rank 0 of 1."""


def body(**changes: Any) -> dict[str, Any]:
    return {"tier": "l1", "keys": [{**KEY, **changes}]}


def hashes(chunks: int) -> list[bytes]:
    tokens = list(range(chunks * CHUNK))
    return list(ChunkNamer().chain(tokens, chunk_size=CHUNK, start=0, root=ROOT))


@pytest.mark.parametrize(
    ("wrong", "status", "words"),
    [
        ([], 422, "not a JSON object"),
        (None, 422, "not a JSON object"),
        ({}, 422, "keys is None"),
        ({"keys": {}}, 422, "expected a list"),
        ({"keys": [1]}, 422, "expected a list of objects"),
        ({"keys": [{}]}, 422, "keys[0].chunk_hash_hex is None"),
        ({"keys": [], "tier": "x"}, 422, "tier is 'x', expected l1, l2 or all"),
        ({"keys": [], "tier": "L1"}, 422, "tier is 'L1'"),
        ({"keys": [], "tier": ["l1"]}, 422, "tier is ['l1']"),
        ({"keys": [], "force": None}, 422, "force is None"),
        ({"keys": [], "adapter": 5}, 422, "adapter is 5"),
        (body(model_name=None), 422, "keys[0].model_name is None"),
        (body(cache_salt=None), 422, "keys[0].cache_salt is None"),
        (body(kv_rank=1.5), 422, "keys[0].kv_rank is 1.5"),
        (body(kv_rank=True), 422, "keys[0].kv_rank is True"),
        (body(object_group_id="0"), 422, "keys[0].object_group_id is '0'"),
        (body(chunk_hash_hex="zz"), 400, "keys[0]: chunk_hash_hex is 'zz'"),
        (body(chunk_hash_hex="\u0660\u0661"), 400, "keys[0]: chunk_hash_hex"),
        (body(chunk_hash_hex="\u00a0aa"), 400, "keys[0]: chunk_hash_hex"),
        (body(chunk_hash_hex="abc"), 400, "keys[0]: chunk_hash_hex"),
        (body(model_name="a@b"), 400, "keys[0]: model_name is 'a@b'"),
        (body(cache_salt="a@b"), 400, "keys[0]: cache_salt is 'a@b'"),
        (body(cache_salt="a" * 300), 400, "keys[0]: cache_salt"),
        (body(object_group_id=-1), 400, "keys[0]: object_group_id is -1"),
        ({"keys": [KEY] * (MAX_KEYS + 1)}, 400, "10001 keys, expected at most 10000"),
    ],
)
def test_bad_deletions(wrong: Any, status: int, words: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_deletion(wrong)
    assert (caught.value.status, words in caught.value.detail) == (status, True), caught.value
    assert len(caught.value.detail) < 300


def test_a_deletion_and_its_defaults() -> None:
    wanted = parse_deletion({"keys": [{**KEY, "other": 1}], "other": 2})
    assert (wanted.tier, wanted.force, wanted.adapter) == ("l2", False, None)
    name = ObjectName(chunk_hash=bytes(32), model_name="m", kv_rank=16777472, group=0, salt="")
    assert wanted.names == (name,)
    spaced = parse_deletion(body(chunk_hash_hex=" 00 11\t", kv_rank=-1, object_group_id=7))
    assert (spaced.names[0].chunk_hash, spaced.names[0].group) == (b"\0\x11", 7)
    empty = parse_deletion(body(chunk_hash_hex="", model_name=""))
    assert empty.names[0].chunk_hash == b""


@pytest.mark.parametrize(
    ("query", "tiers", "status", "words"),
    [
        ({}, [], 503, "there is no L2 tier"),
        ({"adapter": "fs"}, [], 503, "there is no L2 tier"),
        ({}, ["fs", "mock"], 503, "fs of the embedded server cannot be listed"),
        ({"adapter": "mock"}, ["fs", "mock"], 503, "mock of the embedded"),
        ({"adapter": "s3"}, ["fs", "mock"], 404, "'s3', known: fs, mock"),
        ({"tier": "l1"}, ["fs"], 400, "tier l1 cannot be listed, only l2"),
        ({"tier": "all"}, [], 400, "tier all cannot be listed, only l2"),
        ({"tier": "x"}, [], 422, "tier is 'x'"),
        ({"page_size": "0"}, [], 422, "page_size is '0', expected 1 to 5000"),
        ({"page_size": "5001"}, [], 422, "page_size is '5001'"),
        ({"page_size": "x"}, [], 422, "page_size is 'x'"),
        ({"page_size": "9" * 5000}, [], 422, "page_size"),
    ],
)
def test_listings(query: dict[str, str], tiers: list[str], status: int, words: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        refuse_listing(tiers, query)
    assert (caught.value.status, words in caught.value.detail) == (status, True), caught.value


def stored(cache: Cache, *keys: ObjectKey) -> None:
    cache.commit(cache.reserve(keys, [1, 1], 0).only_slots())


def object_key(**changes: Any) -> ObjectKey:
    fields = {"chunk_hash": b"h", "model_name": "m", "world_size": 2, "rank": 1, "salt": ""}
    return ObjectKey(**{**fields, **changes})


@pytest.mark.parametrize(
    "other",
    [
        {"chunk_hash": b"x"},
        {"model_name": "x"},
        {"world_size": 3},
        {"rank": 0},
        {"salt": "x"},
        {"group": 1},
    ],
)
def test_every_field_names_an_object(other: dict[str, Any]) -> None:
    cache = Cache(4 * 4096)
    stored(cache, object_key(), object_key(**other))
    rank = kv_rank(world_size=2, rank=1)
    wanted = {"tier": "l1", "keys": [{**KEY, "chunk_hash_hex": "68", "kv_rank": rank}]}
    assert delete(cache, [], parse_deletion(wanted), 0)["deleted"] == 1
    assert cache.keys() == (object_key(**other),)


def test_a_reservation_goes_by_force_alone() -> None:
    cache = Cache(4 * 4096)
    cache.reserve([object_key()], [1], 0)
    rank = kv_rank(world_size=2, rank=1)
    wanted: dict[str, Any] = {
        "tier": "l1",
        "keys": [{**KEY, "chunk_hash_hex": "68", "kv_rank": rank}],
    }
    left = {"deleted": 0, "skipped": 1, "ok": True}
    gone = {"deleted": 1, "skipped": 0, "ok": True}
    assert delete(cache, [], parse_deletion(wanted), 0) == left
    assert delete(cache, [], parse_deletion({**wanted, "force": True}), 0) == gone


def test_the_rank_number_is_that_of_the_real_server() -> None:
    assert kv_rank(world_size=1, rank=0) == 16777472
    assert kv_rank(world_size=4, rank=3) == 4 << 24 | 3 << 16 | 4 << 8 | 3


async def remove(site: Site, chunks: int, **fields: Any) -> tuple[int, int]:
    names = delete_body(hashes=hashes(chunks), model_name=MODEL, world_size=1, **fields)
    answer = await site.ask("DELETE", OBJECTS_PATH, names)
    assert answer.status == 200
    return parse_deleted(answer.document)


@pytest.mark.asyncio
async def test_a_hole_can_be_punched_and_locked_objects_stay() -> None:
    async def fill(engine: Engine) -> None:
        assert await engine.store(3)
        assert await engine.lookup(2, "warm") == 2

    async with serving() as site, engine_of(site) as engine:
        await fill(engine)
        assert await remove(site, 3) == (1, 2)
        assert await engine.lookup(3, "still") == 2
        assert await engine.retrieve(2, "warm")
        assert await engine.retrieve(2, "still")
        assert await remove(site, 1) == (1, 0)
        assert await engine.lookup(2, "hole") == 0
        assert await remove(site, 3, force=True) == (1, 0)
        assert await remove(site, 3, force=True) == (0, 0)
        assert (await site.ask("GET", "/status")).document["storage_manager"]["l1_manager"][
            "memory_used_bytes"
        ] == 0


@pytest.mark.asyncio
async def test_l2_and_all_without_and_with_a_tier() -> None:
    async with serving() as site, engine_of(site) as engine:
        assert await engine.store(1)
        answer = await site.ask("DELETE", OBJECTS_PATH, {"keys": [], "tier": "l2"})
        assert (answer.status, answer.document) == (503, {"detail": "there is no L2 tier"})
        names = delete_body(hashes=hashes(1), model_name=MODEL, world_size=1)
        answer = await site.ask("DELETE", OBJECTS_PATH, {**names, "tier": "all"})
        assert answer.status == 503
        assert await engine.lookup(1, "gone from L1 all the same") == 0
    async with serving(l2=("mock://1/?peeking_latency=0.1",)) as site:
        answer = await site.ask("DELETE", OBJECTS_PATH, {**names, "tier": "l2"})
        assert (answer.status, answer.document["ok"]) == (200, False)
        assert "cannot delete single objects" in answer.document["error"]
        unknown = await site.ask("DELETE", OBJECTS_PATH, {**names, "tier": "l2", "adapter": "s3"})
        assert unknown.status == 404


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("data", "status", "document"),
    [
        (b"null", 200, {"status": "ok", "cleared": {"tier": "l1"}}),
        (b"", 200, {"status": "ok", "cleared": {"tier": "l1"}}),
        (b'{"tier":"l2"}', 400, {"detail": "tier l2 cannot be cleared, only l1"}),
        (b'{"tier":"all"}', 400, {"detail": "tier all cannot be cleared, only l1"}),
        (b'{"tier":"x"}', 422, {"detail": "tier is 'x', expected l1, l2 or all"}),
        (b'{"tier":NaN}', 422, {"detail": "tier is nan, expected l1, l2 or all"}),
        (b'{"force":1}', 422, {"detail": "force is 1, expected a bool"}),
        (b"[]", 422, {"detail": "the body is not a JSON object"}),
    ],
)
async def test_clear_answers_as_the_real_server(data: bytes, status: int, document: Any) -> None:
    async with serving() as site:
        answer = await site.ask("POST", "/cache/clear", data=data)
        assert (answer.status, answer.document) == (status, document)
