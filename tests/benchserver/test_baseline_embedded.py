"""The acceptance list against our embedded server, with small shapes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import acceptance
from tests.mitm.bench import assert_clean, assert_proven, await_bench, run_bench, start_bench
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls
from tests.room import NoRoomError, make_room, stored_bytes

SEQUENCES = 5
CASES = acceptance.SMALL_HANDLE_CASES
ENGINE = (CASES["float16"][0], "--transfer-mode", "engine_driven", "--require-transport")


@pytest.fixture(scope="module")
def server() -> Iterator[Urls]:
    with forked_server() as running:
        yield running.urls


@pytest.fixture(scope="module")
def pooled_server() -> Iterator[Urls]:
    with forked_server("--shm-name", f"baseline{os.getpid()}") as running:
        yield running.urls


@pytest.mark.parametrize("name", CASES)
def test_proves_every_byte(name: str, server: Urls, tmp_path: Path) -> None:
    acceptance.check_case(server, CASES[name], SEQUENCES, tmp_path)


def test_engine_driven_inline(server: Urls, tmp_path: Path) -> None:
    acceptance.check_case(server, (*ENGINE, "inline"), SEQUENCES, tmp_path)


def test_engine_driven_inline_fp8(server: Urls, tmp_path: Path) -> None:
    case = ("(2,128,16,2,8):float8_e5m2:2", *ENGINE[1:], "inline")
    acceptance.check_case(server, case, SEQUENCES, tmp_path)


def test_engine_driven_shm(pooled_server: Urls, tmp_path: Path) -> None:
    acceptance.check_case(pooled_server, (*ENGINE, "shm"), SEQUENCES, tmp_path)


def test_engine_driven_shm_tp2_mla(pooled_server: Urls, tmp_path: Path) -> None:
    spec, *tp2 = CASES["mla_tp2"]
    case = (spec, *tp2, *ENGINE[1:], "shm")
    acceptance.check_case(pooled_server, case, SEQUENCES, tmp_path)


@pytest.mark.parametrize(("name", "ranks"), [("two_groups", 1), ("tp2", 2), ("mla_tp2", 2)])
def test_retrieves_in_part(name: str, ranks: int, server: Urls, tmp_path: Path) -> None:
    acceptance.check_parts(server, CASES[name], ranks, tmp_path)


@pytest.mark.parametrize(("name", "ranks"), [("two_groups", 1), ("tp2", 2), ("mla_tp2", 2)])
def test_sequences_at_once(name: str, ranks: int, server: Urls, tmp_path: Path) -> None:
    acceptance.check_at_once(server, CASES[name], ranks, tmp_path)


def test_sequences_at_once_engine_driven(pooled_server: Urls, tmp_path: Path) -> None:
    acceptance.check_at_once(pooled_server, (*ENGINE, "shm"), 1, tmp_path)


@pytest.mark.parametrize(
    ("fault", "check"), [("flip_byte@15", "content"), ("lost_chunk@9", "visibility")]
)
def test_of_sequences_at_once_the_one_that_is_spoilt_fails(
    fault: str, check: str, tmp_path: Path
) -> None:
    with forked_server("--fault", fault) as running:
        options = acceptance.options_of(CASES["tp2"], 12)
        options += ["--concurrency", "4", "--visible-within", "0.5"]
        options += ["--partial-retrieve-every", "0"]
        ended = run_bench(running.urls, options, tmp_path / "report.json")
    assert ended.exit_code == 1, ended.explain()
    counts = ended.report["sequences"]
    assert (counts["proven"], counts["failed"]) == (11, 1), ended.explain()
    assert check in ended.bad_checks, ended.explain()


def test_an_interruption_ends_all_clients(server: Urls, tmp_path: Path) -> None:
    before = acceptance.status_of(server)
    spec, *tp2 = CASES["tp2"]
    options = ["--kvcache-shape-spec", spec, *tp2, "--interval", "0", "--concurrency", "4"]
    bench = start_bench(server, options, report := tmp_path / "report.json")
    assert bench.stdout is not None
    while "[seq=0] CHECKSUM MATCH OK" not in bench.stdout.readline():  # it carries all probes
        assert bench.poll() is None
    bench.send_signal(signal.SIGINT)
    ended = await_bench(bench, report)
    assert_clean(ended)
    assert ended.exit_code == 0, ended.explain()
    assert ended.report["sequences"]["proven"] >= 1
    acceptance.assert_nothing_left(server, before)


def test_retrieves_in_part_what_is_warm(server: Urls, tmp_path: Path) -> None:
    acceptance.check_parts_of_warm(server, CASES["tp2"], 2, tmp_path)


def test_one_sequence_of_any_number_carries_every_probe(server: Urls, tmp_path: Path) -> None:
    acceptance.check_first_carries_every_probe(server, CASES["tp2"], tmp_path)


def test_what_a_run_cannot_probe_is_named(server: Urls, tmp_path: Path) -> None:
    options = ["--kvcache-shape-spec", "(2,64,16,1,8):float16:1", "--num-tokens", "256"]
    ended = run_bench(server, [*options, "--end", "1", "--quiet"], tmp_path / "report.json")
    assert_proven(ended, 1)
    named = next(line for line in ended.stdout.splitlines() if line.startswith("Not evaluated: "))
    assert "equal_chunks (a sequence is one chunk" in named
    assert "bounds (a sequence is one chunk" in named


def test_refuses_another_transport(server: Urls, tmp_path: Path) -> None:
    acceptance.check_wrong_transport(server, CASES["float16"], "shm", tmp_path)


def test_two_benches_at_once(server: Urls, tmp_path: Path) -> None:
    acceptance.check_two_at_once(server, CASES["float16"], SEQUENCES, tmp_path)


def test_expect_warm(server: Urls, tmp_path: Path) -> None:
    acceptance.check_expect_warm(server, CASES["float16"], SEQUENCES, tmp_path)


def test_same_seed_twice_fails(server: Urls, tmp_path: Path) -> None:
    acceptance.check_seen_twice(server, CASES["float16"], 1, tmp_path)


def test_wrong_mode_names_the_server_flag(tmp_path: Path) -> None:
    with forked_server("--supported-transfer-mode", "lmcache_driven") as running:
        acceptance.check_wrong_mode(running.urls, CASES["float16"], tmp_path)


def test_room_is_made_on_a_server_that_runs(server: Urls, tmp_path: Path) -> None:
    warm = [*acceptance.options_of(CASES["float16"], 1), "--seed", "20250818"]
    assert_proven(run_bench(server, warm, tmp_path / "cold.json"), 1)
    small = stored_bytes(CASES["float16"][0], tokens=512, sequences=1)
    assert make_room(server, sequence_bytes=small, sequences=7) == 7
    # Nothing is left of it: the same sequence is cold again.
    assert_proven(run_bench(server, warm, tmp_path / "again.json"), 1)
    l1_bytes = acceptance.status_of(server).l1_bytes
    assert make_room(server, sequence_bytes=l1_bytes // 5, sequences=7) == 3
    with pytest.raises(NoRoomError, match=r"L1 has 0\.07 GB, too little for one sequence of 0\.07"):
        make_room(server, sequence_bytes=l1_bytes, sequences=1)
    nobody = Urls(rpc_url=server.rpc_url, http_url="http://127.0.0.1:1")
    with pytest.raises(NoRoomError, match=r"127\.0\.0\.1:1 could not be emptied: .*refused"):
        make_room(nobody, sequence_bytes=1, sequences=1)


def test_a_chunk_larger_than_the_default_number_of_tokens(tmp_path: Path) -> None:
    spec = ("--kvcache-shape-spec", "(2,160,16,1,8):uint8:1")
    with forked_server("--chunk-size", "1024") as running:
        ended = run_bench(running.urls, [*spec, "--end", "1"], tmp_path / "r.json")
        asked = run_bench(running.urls, [*spec, "--num-tokens", "512"], tmp_path / "x.json")
    assert_proven(ended, 1)
    assert "--num-tokens = 1024, one chunk: the default of 512 holds none" in ended.stdout
    assert ended.report["config"]["num_tokens"] == 1024
    assert " --num-tokens 1024 " in ended.report["replay"]
    assert asked.exit_code == 2
    assert "requests of 512 tokens are less than one chunk of 1024 tokens" in asked.stderr
