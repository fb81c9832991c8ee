"""The cache keys of one run."""

from __future__ import annotations

import pytest

from benchserver.client.keys import KeyMaker
from protocol.keys import CacheKey

KEYS = KeyMaker(model_name="m", world_size=2, cache_salt="s", readers=3)


@pytest.mark.parametrize("kv_rank", [None, 0, 1])
def test_a_key_has_what_the_run_has_and_what_the_request_has(kv_rank: int | None) -> None:
    assert KEYS.key((1, 2, 3), end=2, request_id="r", kv_rank=kv_rank) == CacheKey(
        model_name="m",
        world_size=2,
        worker_id=kv_rank,
        token_ids=(1, 2, 3),
        start=0,
        end=2,
        request_id="r",
        cache_salt="s",
        num_kv_readers=3,
    )


@pytest.mark.parametrize("readers", [0, 1, 7])
def test_other_readers_may_be_said(readers: int) -> None:
    key = KEYS.key((1,), end=1, request_id="r", kv_rank=0, readers=readers)
    assert key.num_kv_readers == readers
