"""The blocks of a request: filled, poisoned, looked at."""

from __future__ import annotations

import pytest

from benchserver.kv.evidence import EvidenceKind
from benchserver.kv.verify import verify
from benchserver.scenarios.load.lease import Lease
from tests.benchserver.scenarios.load.conftest import MakeLoad

DIGESTS = (11, 12, 13, 14)


@pytest.mark.asyncio
async def test_a_lease_fills_what_will_be_stored_and_poisons_what_will_be_read(
    make_load: MakeLoad,
) -> None:
    stage = make_load({"tp_size": 2}).stage
    crew = stage.crews[0]
    lease = Lease(stage, crew, number=1, leases=2)
    lease.begin()
    armed = await lease.arm(DIGESTS, 3)
    assert (armed.hits, armed.done_ns) == (3, stage.clock.now_ns())
    for worker in crew.workers:
        stored = verify(worker.pool, lease.source(worker.rank, 1), DIGESTS[3:], ())
        assert stored.kind is EvidenceKind.MATCH
    seen = await lease.look(DIGESTS[:3], ())
    assert [(one.rank, one.content.kind, one.canaries.kind) for one in seen] == [
        (0, EvidenceKind.UNTOUCHED, EvidenceKind.MATCH),
        (1, EvidenceKind.UNTOUCHED, EvidenceKind.MATCH),
    ]


@pytest.mark.asyncio
async def test_what_is_written_behind_the_hits_is_seen(make_load: MakeLoad) -> None:
    stage = make_load().stage
    lease = Lease(stage, stage.crews[0], number=0, leases=1)
    lease.begin()
    await lease.arm(DIGESTS, 2)
    stage.crews[0].workers[0].pool.poison(lease.target(0, 4))
    (seen,) = await lease.look(DIGESTS[:2], ())
    assert seen.canaries.kind is EvidenceKind.MISMATCH
    assert seen.canaries.bad_pages == 2 * 2 * 2 * 2


@pytest.mark.asyncio
async def test_only_writers_fill(make_load: MakeLoad) -> None:
    stage = make_load({"tp_size": 2, "spec": "(1,64,16,1,8):float16:2"}).stage
    lease = Lease(stage, stage.crews[0], number=0, leases=1)
    lease.begin()
    await lease.arm(DIGESTS, 0)
    kinds = [
        verify(worker.pool, lease.source(worker.rank, 4), DIGESTS, ()).kind
        for worker in stage.crews[0].workers
    ]
    assert kinds == [EvidenceKind.MATCH, EvidenceKind.MISMATCH]


@pytest.mark.asyncio
async def test_leases_never_share_a_block_and_change_their_own_now_and_then(
    make_load: MakeLoad,
) -> None:
    stage = make_load().stage
    leases = [Lease(stage, stage.crews[0], number=number, leases=3) for number in range(3)]
    used: list[set[int]] = [set(), set(), set()]
    tables = set()
    for _ in range(20):
        for lease, blocks in zip(leases, used, strict=True):
            lease.begin()
            target = lease.target(0, 2)
            blocks |= {*lease.source(0, 4).block_ids, *target.block_ids, *target.canaries}
        tables.add(leases[0].source(0, 4).block_ids)
    assert len(used[0] | used[1] | used[2]) == sum(map(len, used))
    assert 1 < len(tables) < 20
