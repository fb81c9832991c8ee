"""Instance ids and keys of one run."""

from __future__ import annotations

from typing import Any, cast

from benchserver.client.keys import KeyMaker
from benchserver.client.worker import MAX_RANK_BITS, Worker, instance_id
from benchserver.config.run import MAX_WORKERS
from benchserver.options.engine import MAX_TP_SIZE
from protocol.keys import CacheKey


def test_instance_ids_are_unique_and_exact_in_json() -> None:
    nonces = (0, 1, 2**40 - 1)
    ids = [instance_id(nonce, rank) for nonce in nonces for rank in range(MAX_TP_SIZE)]
    assert len(set(ids)) == len(ids)
    assert max(ids) < 2**53
    assert instance_id(1, 2) == 4098


def test_keys() -> None:
    keys = KeyMaker(model_name="m", world_size=2, cache_salt="salt", readers=4)
    key = keys.key([1, 2, 3], end=2, request_id="r", kv_rank=1)
    assert key == CacheKey(
        model_name="m",
        world_size=2,
        worker_id=1,
        token_ids=[1, 2, 3],
        start=0,
        end=2,
        request_id="r",
        cache_salt="salt",
        num_kv_readers=4,
    )
    everyone = keys.key([1], end=1, request_id="r", kv_rank=None, readers=3)
    assert (everyone.worker_id, everyone.num_kv_readers) == (None, 3)


def test_lines_name_the_client_of_a_worker_where_there_are_several() -> None:
    nothing = cast(Any, None)
    parts = {"kv_rank": 0, "instance_id": 7, "rpc": nothing, "pool": nothing, "mode": nothing}
    assert Worker(rank=1, **parts).place == "rank=1"
    assert Worker(rank=1, client=3, **parts).place == "client=3 rank=1"


def test_as_many_workers_as_a_run_may_have_have_ids_of_their_own() -> None:
    assert MAX_WORKERS == 1 << MAX_RANK_BITS
    assert instance_id(1, MAX_WORKERS - 1) < instance_id(2, 0)
