"""`serve --l2`: a cache that outlives L1, and for fs:// the process, proven by the bench itself."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from pathlib import Path

import pytest

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import FsConfig
from benchserver.refserver.tiers.fs.objectfile import NewFile, write_object
from benchserver.refserver.tiers.fs.tier import FsTier
from tests.mitm.bench import SMALL_SPEC, run_bench
from tests.mitm.forkedserver import ForkedServer, forked_server

SEEDED = ("--kvcache-shape-spec", SMALL_SPEC, "--end", "4", "--interval", "0", "--seed", "11")


def clear_l1(server: ForkedServer) -> None:
    request = urllib.request.Request(
        f"{server.urls.http_url}/cache/clear",
        data=b'{"force": true}',
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


def bench(server: ForkedServer, folder: Path, *options: str) -> int:
    ended = run_bench(server.urls, (*SEEDED, *options), folder / "report.json")
    assert not ended.timed_out, ended.explain()
    return ended.exit_code


@pytest.mark.parametrize("mode", ["lmcache_driven", "engine_driven"])
def test_l2_answers_what_l1_has_lost(tmp_path: Path, mode: str) -> None:
    options = ("--transfer-mode", mode, "--tp-size", "2")
    with forked_server("--l2", "mock://1/?peeking_latency=0.1") as server:
        assert bench(server, tmp_path, *options) == 0
        clear_l1(server)
        assert bench(server, tmp_path, *options, "--expect-warm") == 0


def test_without_l2_it_is_lost(tmp_path: Path) -> None:
    with forked_server() as server:
        assert bench(server, tmp_path) == 0
        clear_l1(server)
        assert bench(server, tmp_path, "--expect-warm") == 1


def test_a_directory_outlives_kill_minus_nine(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with forked_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path) == 0
        server.kill()
    with forked_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path, "--expect-warm") == 0


def test_a_flipped_bit_on_disk_is_a_miss_never_data(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with forked_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path) == 0
    victim = max(
        (path for path in tier.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with forked_server("--l2", f"fs://{tier}") as server:
        ended = run_bench(server.urls, (*SEEDED, "--expect-warm"), tmp_path / "report.json")
    assert ended.exit_code == 1, ended.explain()
    assert "cold_lookup" in ended.bad_checks
    assert ended.report["checks"]["content"]["failed"] == 0


TWO_GROUPS = "(2,96,16,2,8):float16:3;(1,96,16,1,24):bfloat16:2"
SMALL_L1 = ("--l1-size-gb", "0.00025")
"""Room for about half of what a run stores."""


def test_chunks_of_two_groups_come_back_from_l2(tmp_path: Path) -> None:
    options = ("--kvcache-shape-spec", TWO_GROUPS, "--tp-size", "2")
    tier = tmp_path / "tier"
    with forked_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path, *options) == 0
        clear_l1(server)
        assert bench(server, tmp_path, *options, "--expect-warm") == 0
    sizes = {path.stat().st_size for path in tier.rglob("objects-v1/*/*")}
    assert len(sizes) == 2
    with forked_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path, *options, "--expect-warm") == 0


def test_what_a_small_l1_evicts_is_lost_without_l2_and_found_with_it(tmp_path: Path) -> None:
    with forked_server(*SMALL_L1) as server:
        assert bench(server, tmp_path) == 0
        assert bench(server, tmp_path, "--expect-warm") == 1
    with forked_server(*SMALL_L1, "--l2", "mock://1/", "--l2-write", "evict") as server:
        assert bench(server, tmp_path) == 0
        assert bench(server, tmp_path, "--expect-warm") == 0


def test_written_as_evicted_a_directory_outlives_a_stop_and_no_kill(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    options = ("--l2", f"fs://{tier}", "--l2-write", "evict")
    with forked_server(*options) as server:
        assert bench(server, tmp_path) == 0
        assert not list(tier.rglob("objects-v1/*/*"))
        server.kill()
    with forked_server(*options) as server:
        assert bench(server, tmp_path, "--expect-warm") == 1
        assert bench(server, tmp_path) == 0
    with forked_server(*options) as server:
        assert bench(server, tmp_path, "--expect-warm") == 0


@pytest.mark.asyncio
async def test_a_file_from_before_groups_is_no_hit_and_goes_first(tmp_path: Path) -> None:
    """Keys had no group then: such a file is sound, and no object's of today."""
    tier = tmp_path / "tier"
    with forked_server("--l2", f"fs://{tier}"):
        pass
    old = b"".join(
        len(part).to_bytes(4, "big") + part for part in (bytes(32), b"m", b"1", b"0", b"")
    )
    name = hashlib.blake2b(old, digest_size=16).hexdigest()
    path = tier / "objects-v1" / name[:2] / name
    new = NewFile(path=path, temporary=tier / "temporary" / "old")
    write_object(new, old, memoryview(bytes(1000)))
    os.utime(path, (1, 1))

    opened = FsTier(FsConfig(directory=tier, capacity_bytes=path.stat().st_size + 1000))
    assert opened.stats.objects == 1
    today = ObjectKey(bytes(32), "m", 1, 0, "")
    assert await opened.probe([today]) == 0
    await opened.write(today, memoryview(bytes(1000)))
    assert await opened.probe([today]) == 1
    assert not path.exists()
    await opened.close()
