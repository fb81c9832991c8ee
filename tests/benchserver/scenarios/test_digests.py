"""Digests of both sides: how much is hashed and asked for at once; who has any at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchserver.scenarios.digests import Effort, digesters_on, effort_on
from tests.benchserver.scenarios.conftest import MakeStage

MIB = 1 << 20


@pytest.mark.parametrize("cpus", [1, 2, 3, 4])
def test_few_cores_hash_one_chunk_and_ask_for_two_slices(cpus: int) -> None:
    effort = effort_on(cpus, 16 * MIB)
    assert effort == Effort(hash_threads=1, digests_at_once=2, chunks_per_request=4)


@pytest.mark.parametrize(
    ("cpus", "threads", "requests"), [(8, 2, 4), (16, 4, 8), (32, 8, 16), (256, 16, 32)]
)
def test_many_cores_share_the_work_one_to_two(cpus: int, threads: int, requests: int) -> None:
    effort = effort_on(cpus, 32 * MIB)
    assert effort == Effort(hash_threads=threads, digests_at_once=requests, chunks_per_request=1)


def test_hashing_never_takes_more_than_all_cores() -> None:
    for cpus in range(1, 400):
        effort = effort_on(cpus, 32 * MIB)
        assert effort.hash_threads + effort.digests_at_once <= max(cpus, 3), cpus
        assert effort.digests_at_once >= 2 * effort.hash_threads, cpus


def test_a_verified_gigabyte_takes_half_a_second_of_hashing_on_16_cores() -> None:
    """At the 0.46 GB/s a thread that were measured; 2.3 s are the bound for the whole sequence."""
    chunks, chunk_bytes, rate = 32, 32 * MIB, 0.46e9
    effort = effort_on(16, chunk_bytes)
    a_chunk_s = chunk_bytes / rate
    ours_s = -(-chunks // effort.hash_threads) * a_chunk_s
    slices = 2 * chunks // effort.chunks_per_request
    theirs_s = -(-slices // effort.digests_at_once) * effort.chunks_per_request * a_chunk_s
    assert max(ours_s, theirs_s) < 0.6


def test_small_chunks_share_a_request_and_large_ones_are_not_cut() -> None:
    assert effort_on(16, 2 * MIB).chunks_per_request == 16
    assert effort_on(16, 48 * MIB).chunks_per_request == 1
    assert effort_on(2, 100 * MIB).chunks_per_request == 1


def test_a_server_is_not_asked_for_more_than_it_can_answer_in_time() -> None:
    assert effort_on(64, 32 * MIB).digests_at_once == 32
    assert effort_on(64, 256 * MIB).digests_at_once == 4
    assert effort_on(64, 2048 * MIB).digests_at_once == 2


@pytest.mark.asyncio
async def test_only_clients_whose_memory_the_server_digests_have_a_digester(
    make_stage: MakeStage,
) -> None:
    stage = make_stage().stage
    [crew] = stage.crews
    without = replace(stage, crews=(replace(crew, cross_check=False),))
    assert digesters_on(without) == (None,)
    assert all(digesters_on(replace(stage, crews=(replace(crew, cross_check=True),))))
