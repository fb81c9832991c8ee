"""`serve --l2`: a cache that outlives L1, and for fs:// the process, proven by the bench itself."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.mitm.bench import SMALL_SPEC, run_bench
from tests.mitm.servers import Server, embedded_server

SEEDED = ("--kvcache-shape-spec", SMALL_SPEC, "--end", "4", "--interval", "0", "--seed", "11")


def clear_l1(server: Server) -> None:
    request = urllib.request.Request(
        f"{server.urls.http_url}/cache/clear",
        data=b'{"force": true}',
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


def bench(server: Server, folder: Path, *options: str) -> int:
    ended = run_bench(server.urls, (*SEEDED, *options), folder / "report.json")
    assert not ended.timed_out, ended.explain()
    return ended.exit_code


@pytest.mark.parametrize("mode", ["lmcache_driven", "engine_driven"])
def test_l2_answers_what_l1_has_lost(tmp_path: Path, mode: str) -> None:
    options = ("--transfer-mode", mode, "--tp-size", "2")
    with embedded_server("--l2", "mock://1/?peeking_latency=0.1") as server:
        assert bench(server, tmp_path, *options) == 0
        clear_l1(server)
        assert bench(server, tmp_path, *options, "--expect-warm") == 0


def test_without_l2_it_is_lost(tmp_path: Path) -> None:
    with embedded_server() as server:
        assert bench(server, tmp_path) == 0
        clear_l1(server)
        assert bench(server, tmp_path, "--expect-warm") == 1


def test_a_directory_outlives_kill_minus_nine(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with embedded_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path) == 0
        server.kill()
    with embedded_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path, "--expect-warm") == 0


def test_a_flipped_bit_on_disk_is_a_miss_never_data(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with embedded_server("--l2", f"fs://{tier}") as server:
        assert bench(server, tmp_path) == 0
    victim = max(
        (path for path in tier.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with embedded_server("--l2", f"fs://{tier}") as server:
        ended = run_bench(server.urls, (*SEEDED, "--expect-warm"), tmp_path / "report.json")
    assert ended.exit_code == 1, ended.explain()
    assert "cold_lookup" in ended.bad_checks
    assert ended.report["checks"]["content"]["failed"] == 0
