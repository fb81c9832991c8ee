"""Block plans: disjoint, inside the pool, never the null block, and all of the pool in time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.kv.blocks import (
    BlockPlan,
    Window,
    check_fillable,
    check_skipped,
    check_window,
    lease_plan,
    leases_needed,
)


def plan(blocks: int, request: int, *, seed: int = 0, turn: int = 0, rank: int = 0) -> BlockPlan:
    return lease_plan(num_blocks=blocks, request_blocks=request, seed=seed, turn=turn, rank=rank)


def blocks_of(window: Window) -> list[int]:
    return [*window.block_ids, *window.canaries]


@given(
    request=st.integers(1, 80),
    spare=st.integers(0, 400),
    seed=st.integers(0, 2**63 - 1),
    turn=st.integers(0, 1 << 40),
    rank=st.integers(0, 255),
)
def test_every_plan_keeps_the_rules(
    request: int, spare: int, seed: int, turn: int, rank: int
) -> None:
    pool = leases_needed(request, 1) + spare
    made = plan(pool, request, seed=seed, turn=turn, rank=rank)
    source, destination = made.source, made.destination
    for window in (source, destination):
        assert len(window.block_ids) == request
        assert sorted(blocks_of(window)) == list(range(window.first, window.first + window.count))
    both = blocks_of(source) + blocks_of(destination)
    assert len(set(both)) == len(both)
    assert min(both) >= 1
    assert max(both) < pool
    assert source.canaries == ()
    assert len(destination.canaries) == 2 + min(spare, request // 8)
    assert destination.canaries[0] == destination.first
    assert destination.canaries[-1] == destination.first + destination.count - 1
    assert made == plan(pool, request, seed=seed, turn=turn, rank=rank)


@pytest.mark.parametrize("request_blocks", [1, 2, 3, 8, 9])
def test_every_block_is_used_in_time(request_blocks: int) -> None:
    smallest = leases_needed(request_blocks, 1)
    for pool in (smallest, smallest + 1, *range(smallest + 2, 5 * smallest, 3)):
        used: set[int] = set()
        for turn in range(2048):
            made = plan(pool, request_blocks, turn=turn)
            used.update(blocks_of(made.source), blocks_of(made.destination))
            if len(used) == pool - 1:
                break
        assert used == set(range(1, pool)), f"never used: {set(range(1, pool)) - used}"


def test_a_few_turns_reach_both_ends_of_the_pool() -> None:
    used = {
        block
        for turn in range(4)
        for window in (plan(1024, 32, turn=turn).source, plan(1024, 32, turn=turn).destination)
        for block in blocks_of(window)
    }
    assert {1, 1023} <= used


@pytest.mark.parametrize(("request_blocks", "needed"), [(1, 5), (2, 7), (32, 67)])
def test_the_smallest_pool(request_blocks: int, needed: int) -> None:
    assert leases_needed(request_blocks, 1) == needed
    made = plan(needed, request_blocks)
    assert sorted(blocks_of(made.source) + blocks_of(made.destination)) == list(range(1, needed))
    message = (
        f"{needed - 1} blocks, but {needed} are needed: 1 x ({request_blocks} source + "
        f"{request_blocks} destination + 2 canaries) + the null block"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        plan(needed - 1, request_blocks)


def test_plans_differ_by_seed_turn_and_rank() -> None:
    plans = {
        plan(100, 16, seed=seed, turn=turn, rank=rank)
        for seed in (0, 1)
        for turn in (0, 1)
        for rank in (0, 1)
    }
    assert len(plans) == 8


def test_tables_are_permuted_and_windows_take_both_orders() -> None:
    plans = [plan(67, 32, turn=turn) for turn in range(16)]
    tables = [w.block_ids for made in plans for w in (made.source, made.destination)]
    assert not any(list(table) == sorted(table) for table in tables)
    assert {made.source.first < made.destination.first for made in plans} == {False, True}


def test_canaries_lie_scattered_inside() -> None:
    inside = {
        block - made.destination.first
        for made in (plan(200, 16, turn=turn) for turn in range(40))
        for block in made.destination.canaries[1:-1]
    }
    assert len(inside) > 10


WINDOW = Window(first=4, count=4, block_ids=(7, 4, 6, 5), canaries=())


def test_what_may_be_skipped() -> None:
    for skipped in range(-1, 6):
        for looked_at, good in ((True, range(1, 5)), (False, range(4))):
            if skipped in good:
                check_skipped(WINDOW, skipped, looked_at=looked_at)
                continue
            with pytest.raises(ValueError, match=f"{skipped} of 4 blocks skipped: none"):
                check_skipped(WINDOW, skipped, looked_at=looked_at)


def test_what_may_be_filled() -> None:
    check_fillable(WINDOW)
    with pytest.raises(ValueError, match="a window of 5 blocks with 4 in its table"):
        check_fillable(Window(first=4, count=5, block_ids=(7, 4, 6, 5), canaries=(8,)))


@pytest.mark.parametrize(
    "window",
    [
        Window(first=-1, count=5, block_ids=(-1, 0, 1, 2, 3), canaries=()),
        Window(first=4, count=4, block_ids=(4, 5, 6, 8), canaries=()),
        Window(first=4, count=4, block_ids=(3, 5, 6, 7), canaries=()),
        Window(first=4, count=4, block_ids=(4, 5, 6), canaries=(8,)),
        Window(first=4, count=5, block_ids=(4, 5, 6, 7, 8), canaries=()),
    ],
)
def test_blocks_outside_the_window_or_the_pool(window: Window) -> None:
    with pytest.raises(ValueError, match=r"^blocks .* in a window .* of a pool of 8 blocks$"):
        check_window(window, 8)


def test_blocks_inside_the_window_and_the_pool() -> None:
    check_window(WINDOW, 8)
    check_window(Window(first=4, count=4, block_ids=(4, 5, 6), canaries=(7,)), 8)


@given(
    request=st.integers(1, 40),
    leases=st.integers(1, 12),
    spare=st.integers(0, 400),
    seed=st.integers(0, 2**63 - 1),
    turns=st.lists(st.integers(0, 1 << 40), min_size=12, max_size=12),
)
def test_leases_of_a_pool_share_no_block_whatever_their_turns(
    request: int, leases: int, spare: int, seed: int, turns: list[int]
) -> None:
    pool = leases_needed(request, leases) + spare

    def made(lease: int) -> BlockPlan:
        return lease_plan(
            num_blocks=pool,
            request_blocks=request,
            seed=seed,
            turn=turns[lease],
            rank=3,
            lease=lease,
            leases=leases,
        )

    plans = [made(lease) for lease in range(leases)]
    windows = [window for one in plans for window in (one.source, one.destination)]
    used = [block for window in windows for block in blocks_of(window)]
    assert len(set(used)) == len(used)
    assert min(used) >= 1
    assert max(used) < pool
    for window in windows:
        check_window(window, pool)
        assert len(window.block_ids) == request
        assert sorted(blocks_of(window)) == list(range(window.first, window.first + window.count))
    assert all(len(one.destination.canaries) >= 2 for one in plans)
    assert plans == [made(lease) for lease in range(leases)]


def test_the_only_lease_is_the_whole_pool_and_others_differ() -> None:
    args = {"num_blocks": 300, "request_blocks": 8, "seed": 5, "turn": 9, "rank": 1}
    assert lease_plan(**args) == lease_plan(**args, lease=0, leases=1)
    tables = {lease_plan(**args, lease=lease, leases=4).source.block_ids for lease in range(4)}
    offsets = {tuple(block - min(table) for block in table) for table in tables}
    assert len(offsets) == 4


@pytest.mark.parametrize(("request_blocks", "in_flight", "needed"), [(1, 1, 5), (32, 4, 265)])
def test_a_lease_that_is_not_there_or_does_not_fit(
    request_blocks: int, in_flight: int, needed: int
) -> None:
    assert leases_needed(request_blocks, in_flight) == needed
    args = {"request_blocks": request_blocks, "seed": 0, "turn": 0, "rank": 0, "leases": in_flight}
    lease_plan(num_blocks=needed, lease=in_flight - 1, **args)
    with pytest.raises(ValueError, match=rf"but {needed} are needed: {in_flight} x \("):
        lease_plan(num_blocks=needed - 1, lease=0, **args)
    for lease in (-1, in_flight):
        with pytest.raises(ValueError, match=f"lease {lease} of {in_flight}"):
            lease_plan(num_blocks=needed, lease=lease, **args)


@given(request=st.integers(1, 40), turn=st.integers(0, 200), data=st.data())
def test_windows_cut_to_what_hit_and_to_what_did_not(
    request: int, turn: int, data: st.DataObject
) -> None:
    made = plan(200, request, turn=turn)
    count = data.draw(st.integers(1, request))
    hit, rest = made.destination.first_blocks(count), made.source.packed(count)
    assert hit.block_ids == made.destination.block_ids[:count]
    assert set(hit.canaries) == {*made.destination.canaries, *made.destination.block_ids[count:]}
    assert sorted(blocks_of(hit)) == sorted(blocks_of(made.destination))
    check_fillable(rest)
    check_window(rest, 200)
    assert len(rest.block_ids) == count
    assert set(rest.block_ids) <= set(made.source.block_ids)


def test_all_of_a_window_is_the_window_and_less_than_a_block_is_none() -> None:
    made = plan(67, 16)
    assert made.destination.first_blocks(16) == made.destination
    assert made.source.packed(16) == made.source
    for count in (0, 17):
        with pytest.raises(ValueError, match=f"{count} of the 16 blocks of a window"):
            made.destination.first_blocks(count)
        with pytest.raises(ValueError, match=f"{count} of the 16 blocks of a window"):
            made.source.packed(count)
    with pytest.raises(ValueError, match="cannot be filled"):
        made.destination.packed(4)
