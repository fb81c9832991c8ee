"""The acceptance list: what a bench must prove against any healthy server, real or embedded."""

from __future__ import annotations

import itertools
import json
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.httpapi import STATUS_PATH, ServerStatus, parse_status
from tests.mitm.bench import (
    Ended,
    assert_clean,
    assert_proven,
    await_bench,
    run_bench,
    start_bench,
)
from tests.mitm.running import Urls
from tests.room import clear

HANDLE_CASES: Mapping[str, tuple[str, ...]] = {
    "float16": ("(2,256,16,8,128):float16:8",),
    "two_groups": ("(1,256,16,1,128):bfloat16:2;(2,256,16,4,64):float16:3",),
    "mla_tp2": ("(1,256,16,1,576):bfloat16:4", "--tp-size", "2"),
    "tp2": ("(2,256,16,4,64):float16:3", "--tp-size", "2"),
    "uint8": ("(2,256,16,4,64):uint8:3",),
    "float32": ("(2,256,16,4,64):float32:3",),
}
SMALL_HANDLE_CASES: Mapping[str, tuple[str, ...]] = {
    "float16": ("(2,128,16,2,8):float16:3",),
    "two_groups": ("(1,128,16,1,32):bfloat16:2;(2,128,16,2,8):float16:3",),
    "mla_tp2": ("(1,128,16,1,72):bfloat16:2", "--tp-size", "2"),
    "tp2": ("(2,128,16,2,8):float16:2", "--tp-size", "2"),
    "uint8": ("(2,128,16,2,8):uint8:2",),
    "fp8": ("(2,128,16,2,8):float8_e4m3fn:2;(1,128,16,1,32):float8_e5m2:1",),
    "float32": ("(2,128,16,2,8):float32:2",),
}
_SETTLE_S = 3.0
_BLOCK_TOKENS = 16
_BLOCKS_OF_A_CHUNK = 16
"""Of every case, with the servers' default chunk size."""

_SKIPPED = re.compile(r"RETRIEVE: .* without the first (\d+) tokens \(")
_WARM_SEED = "20250817"


def options_of(case: Sequence[str], sequences: int) -> list[str]:
    """Return the options of one case: a shape spec, and more."""
    spec, *more = case
    return ["--kvcache-shape-spec", spec, "--end", str(sequences), "--interval", "0", *more]


def status_of(server: Urls) -> ServerStatus:
    """Return what the server holds, by its own /status."""
    with urllib.request.urlopen(server.http_url + STATUS_PATH, timeout=10) as answer:
        return parse_status(json.load(answer))


def check_case(server: Urls, case: Sequence[str], sequences: int, tmp_path: Path) -> Ended:
    """Run one case, which must be proven and leave nothing, here or there."""
    before = status_of(server)
    ended = run_bench(server, options_of(case, sequences), tmp_path / "report.json")
    assert_proven(ended, sequences)
    assert_nothing_left(server, before)
    return ended


def assert_nothing_left(server: Urls, before: ServerStatus) -> None:
    """Fail unless the server holds no more than before."""
    deadline = time.monotonic() + _SETTLE_S
    while not _no_more(before, status_of(server)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _no_more(before, status_of(server)), (before, status_of(server))


def _no_more(before: ServerStatus, after: ServerStatus) -> bool:
    return (
        after.handle_instances <= before.handle_instances
        and after.engine_instances <= before.engine_instances
        and after.active_sessions <= before.active_sessions
        and after.read_locked <= before.read_locked
        and after.write_locked <= before.write_locked
    )


def check_two_at_once(server: Urls, case: Sequence[str], sequences: int, tmp_path: Path) -> None:
    """Run two benches at once; each must prove everything."""
    before = status_of(server)
    paths = [tmp_path / f"report{number}.json" for number in range(2)]
    running = [start_bench(server, options_of(case, sequences), path) for path in paths]
    ended = [await_bench(process, path) for process, path in zip(running, paths, strict=True)]
    for one in ended:
        assert_proven(one, sequences)
    assert_nothing_left(server, before)


def check_at_once(server: Urls, case: Sequence[str], ranks: int, tmp_path: Path) -> None:
    """Run sequences at once, each on a client of its own: nothing is proven less than in turn."""
    at_once, sequences = 4, 12
    ended = check_case(server, (*case, "--concurrency", str(at_once)), sequences, tmp_path)
    workers = f"{at_once * ranks} workers of {at_once} clients"
    assert workers in ended.stdout, ended.explain()
    assert "Throughput (of one worker)" in ended.stdout, ended.explain()
    labels = re.findall(r"^\[(seq=\d+)", ended.stdout, re.MULTILINE)
    together = [label for label, _ in itertools.groupby(labels)]
    assert len(together) == len(set(together)) == sequences, ended.explain()
    assert {name for name, probe in ended.report["probes"].items() if not probe["made"]} <= {
        name for name, probe in ended.report["probes"].items() if probe["not_evaluated"]
    }, ended.explain()
    assert ended.report["checks"]["content"]["passed"] == ranks * sequences, ended.explain()


def check_parts(server: Urls, case: Sequence[str], ranks: int, tmp_path: Path) -> None:
    """Retrieve every sequence in part too: once from each block inside a chunk on."""
    before = status_of(server)
    options = [*options_of(case, _BLOCKS_OF_A_CHUNK), "--partial-retrieve-every", "1"]
    ended = run_bench(server, options, tmp_path / "report.json")
    assert_proven(ended, _BLOCKS_OF_A_CHUNK)
    skipped = {int(tokens) for tokens in _SKIPPED.findall(ended.stdout)}
    offsets = {tokens // _BLOCK_TOKENS % _BLOCKS_OF_A_CHUNK for tokens in skipped}
    assert offsets == set(range(_BLOCKS_OF_A_CHUNK)), ended.explain()
    assert any(tokens % _BLOCK_TOKENS for tokens in skipped), ended.explain()
    passed = ended.report["checks"]["partial"]["passed"]
    assert passed == ranks * _BLOCKS_OF_A_CHUNK, ended.explain()
    assert ended.report["latency"]["RETRIEVE part"]["count"] == passed
    assert ended.report["latency"]["RETRIEVE"]["count"] == passed
    assert_nothing_left(server, before)


def check_parts_of_warm(server: Urls, case: Sequence[str], ranks: int, tmp_path: Path) -> None:
    """With --expect-warm too; --partial-retrieve-every says in which sequences."""
    options = [*options_of(case, 5), "--seed", _WARM_SEED]
    clear(server)
    never = [*options, "--partial-retrieve-every", "0"]
    cold = run_bench(server, never, tmp_path / "cold.json")
    assert_proven(cold, 5)
    assert cold.report["checks"]["partial"]["passed"] == 0
    assert cold.report["checks"]["partial"]["not_evaluated"] == "--partial-retrieve-every 0"
    third = [*options, "--expect-warm", "--partial-retrieve-every", "3"]
    warm = run_bench(server, third, tmp_path / "warm.json")
    assert_proven(warm, 5)
    assert warm.report["checks"]["partial"]["passed"] == 2 * ranks
    assert "[seq=3] LOOKUP again:" in warm.stdout
    assert "the first, and 0, 3, 6, ...; --partial-retrieve-every 3" in warm.stdout


def check_first_carries_every_probe(server: Urls, case: Sequence[str], tmp_path: Path) -> None:
    """A run of one sequence makes every probe, whatever the sequence's number."""
    before = status_of(server)
    options = [*options_of(case, 8), "--start", "7"]
    ended = run_bench(server, options, tmp_path / "report.json")
    assert_proven(ended, 1)
    made = {name: probe["made"] for name, probe in ended.report["probes"].items()}
    assert made == dict.fromkeys(made, 1), ended.explain()
    named = [line for line in ended.stdout.splitlines() if line.startswith("Not evaluated")]
    assert [line.partition(" (it takes 150 s")[0] for line in named] == ["Not evaluated: growth"]
    assert_nothing_left(server, before)


def check_expect_warm(server: Urls, case: Sequence[str], sequences: int, tmp_path: Path) -> None:
    """A second run with the same seed finds everything; after a clear it must fail."""
    options = [*options_of(case, sequences), "--seed", _WARM_SEED]
    clear(server)
    assert_proven(run_bench(server, options, tmp_path / "cold.json"), sequences)
    warm = [*options, "--expect-warm"]
    assert_proven(run_bench(server, warm, tmp_path / "warm.json"), sequences)
    clear(server)
    lost = run_bench(server, warm, tmp_path / "lost.json")
    assert_clean(lost)
    assert lost.exit_code == 1, lost.explain()
    assert "cold_lookup" in lost.bad_checks, lost.explain()
    assert "the cache does not hold what an earlier run with this seed stored" in lost.stdout


def check_seen_twice(server: Urls, case: Sequence[str], sequences: int, tmp_path: Path) -> None:
    """Without --expect-warm the second run with a seed must fail: its cold LOOKUP hits."""
    options = [*options_of(case, sequences), "--seed", _WARM_SEED]
    clear(server)
    assert_proven(run_bench(server, options, tmp_path / "first.json"), sequences)
    second = run_bench(server, options, tmp_path / "second.json")
    assert_clean(second)
    assert second.exit_code == 1, second.explain()
    assert "cold_lookup" in second.bad_checks, second.explain()


def check_wrong_mode(server: Urls, case: Sequence[str], tmp_path: Path) -> None:
    """Against a server without engine_driven: exit 1, and the server's flag is named."""
    options = [*options_of(case, 1), "--transfer-mode", "engine_driven"]
    ended = run_bench(server, options, tmp_path / "report.json")
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    assert "--supported-transfer-mode" in ended.stdout + ended.stderr, ended.explain()


def check_wrong_transport(server: Urls, case: Sequence[str], required: str, tmp_path: Path) -> None:
    """Another transport than the required one: exit 1, and both are named."""
    options = [*options_of(case, 1), "--transfer-mode", "engine_driven"]
    ended = run_bench(server, [*options, "--require-transport", required], tmp_path / "r.json")
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    assert f"--require-transport {required}, but" in ended.stdout, ended.explain()
