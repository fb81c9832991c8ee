"""How a client's key becomes object keys, and what a request leaves the newest."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.refusal import RefusalError
from benchserver.refserver.registry import MAX_WORLD_SIZE, parse_engine_instance
from benchserver.refserver.store.hashing import ROOT, chain
from tests.faultstage import CHUNK, empty_stage, key

ENGINE: dict[str, Any] = {
    "instance_id": 1,
    "model_name": "m",
    "world_size": 2,
    "block_size": 2,
    "num_layers": 2,
    "hidden_dim_size": 4,
    "dtype_str": "float16",
    "use_mla": False,
}


def hashes_of(name: str) -> list[bytes]:
    return list(chain(key(name, 0).token_ids, chunk_size=CHUNK, start=0, root=ROOT))


def test_a_workers_range_is_chunk_by_chunk_and_in_each_group_by_group() -> None:
    first, second = hashes_of("a")
    with empty_stage() as stage:
        found = stage.core.objects_of(key("a", 1, cache_salt="s"), groups=2)
        assert found == tuple(
            ObjectKey(chunk_hash, "m", 2, 1, "s", group)
            for chunk_hash in (first, second)
            for group in (0, 1)
        )
        behind = stage.core.objects_of(key("a", 1, start=CHUNK))
        assert behind == (ObjectKey(second, "m", 2, 1, ""),)
        assert stage.core.objects_of(key("a", 1, end=0)) == ()


@pytest.mark.parametrize(
    ("rank", "changes", "reason"),
    [
        (None, {}, "the key has no worker_id"),
        (0, {"start": 1}, r"^range \[1, 8\) of 8 tokens does not consist of whole chunks of 4$"),
        (0, {"end": 7}, "whole chunks"),
        (0, {"start": -CHUNK}, "whole chunks"),
        (0, {"start": 2 * CHUNK, "end": CHUNK}, "whole chunks"),
        (0, {"end": 3 * CHUNK}, "whole chunks"),
        (0, {"world_size": MAX_WORLD_SIZE + 1}, f"expected at most {MAX_WORLD_SIZE}$"),
    ],
)
def test_what_a_real_server_does_not_answer(
    rank: int | None, changes: dict[str, Any], reason: str
) -> None:
    with empty_stage() as stage:
        with pytest.raises(RefusalError, match=reason):
            stage.core.objects_of(key("a", rank, **changes))
        assert stage.core.sessions.count == 0


def test_a_lookups_rows_are_of_all_ranks_or_of_one() -> None:
    first, second = hashes_of("a")
    with empty_stage() as stage:
        core = stage.core
        assert list(core.rows_of(key("a", None))) == [
            tuple(ObjectKey(chunk_hash, "m", 2, rank, "") for rank in (0, 1))
            for chunk_hash in (first, second)
        ]
        assert list(core.rows_of(key("a", 1))) == [
            (ObjectKey(first, "m", 2, 1, ""),),
            (ObjectKey(second, "m", 2, 1, ""),),
        ]
        assert len(list(core.rows_of(key("a", None, end=2 * CHUNK - 1)))) == 1
        assert list(core.rows_of(key("a", None, end=-1))) == []
        with pytest.raises(RefusalError, match="world_size"):
            list(core.rows_of(key("a", None, world_size=2**60)))


def test_sizes_are_those_of_whoever_has_registered_the_model() -> None:
    with empty_stage() as stage:
        core = stage.core
        assert core.group_bytes("m", 2) == ()
        assert core.groups_of(key("a", 0)) == 1
        number, engine = parse_engine_instance(ENGINE, chunk_size=CHUNK, now_ns=0)
        core.registry.engine[number] = engine
        assert core.group_bytes("m", 2) == (engine.object_bytes,)
        assert core.group_bytes("m", 1) == core.group_bytes("n", 2) == ()


@pytest.mark.asyncio
async def test_what_a_request_touched_becomes_the_newest_its_first_chunk_last() -> None:
    with empty_stage() as stage:
        core = stage.core
        for name in "ab":
            found = core.objects_of(key(name, 0, world_size=1))
            core.commit((await core.reserve(found, (64,))).only_slots())
        session = core.sessions.get("a")
        assert session is not None
        core.touch(session)
        names = {**dict.fromkeys(hashes_of("a"), "a"), **dict.fromkeys(hashes_of("b"), "b")}
        order = [found.chunk_hash for found in list(core.cache.keys())]
        assert [names[chunk_hash] for chunk_hash in order] == list("bbaa")
        assert order[2:] == hashes_of("a")[::-1]
