"""Lookups: locks as the real server keeps them, results consumed once, and their bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from benchserver.refserver.front.status import status_document
from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.ops import lookup as lookup_ops
from benchserver.refserver.refusal import RefusalError
from protocol.messages import VOID
from protocol.ops import Op
from tests import faultstage
from tests.benchserver.refserver.tiers.reference import DictTier
from tests.httpstage import serving
from tests.serverstage import (
    CHUNK,
    CLASSICAL,
    DONE,
    FAILED,
    connected,
    infos,
    key,
    kv_pages,
    lookup,
    register,
    retrieve,
    store,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.asyncio
async def test_locks_as_the_real_server_keeps_them() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            assert await store(client, key("s"), [[1, 2, 3, 4]]) == DONE
            assert await retrieve(client, key("none"), [[5, 6, 7, 8]]) == FAILED
            assert await lookup(client, "two", num_kv_readers=2) == 2
            assert await retrieve(client, key("other"), [[5, 6, 7, 8]]) == DONE
            assert await retrieve(client, key("two"), [[5, 6, 7, 8]]) == DONE
            assert await retrieve(client, key("two"), [[5, 6, 7, 8]]) == FAILED
            assert await lookup(client, "free") == 2
            free = key("free", worker_id=None)
            assert await client.call(Op.FREE_LOOKUP_LOCKS, free, 1) is VOID
            assert await retrieve(client, key("free"), [[5, 6, 7, 8]]) == FAILED
            # A lookup that was not asked for is freed too; without a lookup, nothing is.
            assert await client.call(Op.LOOKUP, key("quiet", worker_id=None), 1) is VOID
            assert await client.call(Op.FREE_LOOKUP_LOCKS, key("quiet", worker_id=None), 1) is VOID
            assert await client.call(Op.QUERY_PREFETCH_STATUS, "quiet") == 0
            assert await lookup(client, "kept") == 2
            assert await client.call(Op.FREE_LOOKUP_LOCKS, key("new", worker_id=None), 1) is VOID
            assert await client.call(Op.END_SESSION, "kept") is VOID
            assert await client.call(Op.CLEAR, False) is VOID
            assert await lookup(client, "still") == 2
            assert await client.call(Op.CLEAR, True) is VOID
            assert await lookup(client, "gone") == 0


@pytest.mark.asyncio
async def test_a_result_is_consumed_once_and_unknown_ids_give_zero() -> None:
    with kv_pages(CLASSICAL) as pages:
        async with serving() as server, connected(server.rpc_port) as [client]:
            await register(client, 1, pages, infos([0]))
            await store(client, key("s"), [[1, 2, 3, 4]])
            assert await client.call(Op.LOOKUP, key("r", worker_id=None), 1) is VOID
            assert await client.call(Op.WAIT_PREFETCH_STATUS, "r", 1.0) == 2
            assert await client.call(Op.QUERY_PREFETCH_STATUS, "r") == 0
            assert await client.call(Op.WAIT_PREFETCH_STATUS, "never", 1.0) == 0
            assert await lookup(client, "other", model_name="unregistered") == 0
            assert await lookup(client, "salted", cache_salt="s") == 0
            assert await lookup(client, "short", end=CHUNK) == 1
            assert await lookup(client, "negative", end=-5) == 0


class Silent(DictTier):
    """A tier that never says what it has."""

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        await asyncio.Event().wait()
        return 0


@pytest.mark.asyncio
async def test_lookups_that_wait_for_a_tier_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_ops, "MAX_PREFETCHES", 2)

    async with faultstage.staged(tiers=(Silent(),)) as stage:
        assert await stage.lookup("a") is VOID
        assert await stage.lookup("b") is VOID
        with pytest.raises(RefusalError, match="2 lookups wait for L2"):
            await stage.lookup("c")
        assert status_document(stage.core)["active_prefetch_jobs"] == 2
        assert await stage.lookup("b") is VOID  # in place of its own
        await stage.call(Op.END_SESSION, "a")
        assert await stage.lookup("c") is VOID
        await stage.call(Op.END_SESSION, "b")
        await stage.call(Op.END_SESSION, "c")
        assert status_document(stage.core)["active_prefetch_jobs"] == 0
