"""What scripts/gpu and scripts/bench_gpu read out of runs, and what they call a failure.

Needs no device: it is part of the default suite.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shapespec import chunk_bytes, parse_shape_spec
from tests.gpu.acceptance import (
    CASES,
    HEADER,
    LONG_SPEC,
    LONG_TOKENS,
    AcceptanceCase,
    problems_of,
    row_of,
)
from tests.gpu.figures import Figure, pace_of, slower_than
from tests.gpu.processes import Plan, await_line, memory_names, run_beside, run_gpu_bench
from tests.mitm.bench import Ended

CASE = AcceptanceCase(name="some", spec="(2,128,16,2,8):float16:3")
TWO_RANKS = AcceptanceCase(name="two", spec=CASE.spec, options=("--tp-size", "2"))


def ended(exit_code: int = 0, *, timed_out: bool = False, stdout: str = "", **report: Any) -> Ended:
    return Ended(
        pid=1,
        exit_code=exit_code,
        stdout=stdout,
        stderr="",
        report=report,
        wall_s=1.0,
        timed_out=timed_out,
    )


def good_report(devices: tuple[str, ...] = ("a",), proven: int = 3) -> dict[str, Any]:
    return {
        "config": {"devices": [{"number": n, "uuid": uuid} for n, uuid in enumerate(devices)]},
        "sequences": {"proven": proven, "attempted": 3},
        "latency": {
            "sequence wall": {"p50_ms": 123.4},
            "STORE": {"p50_ms": 11.239},
            "RETRIEVE": {"p50_ms": 8.1},
        },
        "throughput_gb_per_s": {"STORE": 5.97, "RETRIEVE": 8.21},
        "checks": {"content": {"verdict": "valid"}},
    }


def test_a_good_run_has_every_cell_and_no_problem() -> None:
    run = ended(**good_report())
    assert row_of(CASE, run) == "| some | 0 | 3 / 3 | 123 | 11.24 | 6.0 | 8.10 | 8.2 | 0 |"
    assert row_of(CASE, run).count("|") == HEADER.splitlines()[0].count("|")
    assert list(problems_of(CASE, run, 3)) == []


def test_a_run_without_a_report_still_has_a_row() -> None:
    run = ended(1, stdout="bench-server: error: no GPU\n")
    assert row_of(CASE, run) == "| some | 1 | - / - | - | - | - | - | - | - |"
    assert list(problems_of(CASE, run, 3)) == [
        "exit 1: bench-server: error: no GPU",
        "0 of 3 sequences are proven",
    ]


def test_a_run_that_was_killed_says_so() -> None:
    run = ended(-9, timed_out=True, stdout="one\ntwo\n")
    assert row_of(CASE, run).startswith("| some | killed |")
    assert list(problems_of(CASE, run, 3)) == ["it did not end within 60 s; its last line: two"]


def test_the_line_of_the_failed_check_is_shown() -> None:
    report = good_report(proven=2)
    report["checks"]["content"]["verdict"] = "invalid"
    run = ended(1, stdout="Sequences: 3 run\ncontent: seq=1 wrong\nRESULT: FAIL\n", **report)
    assert list(problems_of(CASE, run, 3)) == [
        "exit 1: content: seq=1 wrong",
        "2 of 3 sequences are proven",
    ]


def test_exit_0_is_not_believed() -> None:
    fewer = ended(**good_report(proven=2))
    assert list(problems_of(CASE, fewer, 3)) == ["2 of 3 sequences are proven"]
    report = good_report()
    report["checks"]["residue"] = {"verdict": "unknown"}
    assert list(problems_of(CASE, ended(**report), 3)) == ["exit 0, but residue not valid"]


def test_ranks_must_be_spread_over_the_devices_that_were_asked_for() -> None:
    both = ended(**good_report(("a", "b")))
    same = ended(**good_report(("a", "a")))
    silent = ended(**good_report(()))
    assert list(problems_of(TWO_RANKS, both, 3, gpus=2)) == []
    assert list(problems_of(TWO_RANKS, same, 3)) == []
    assert list(problems_of(TWO_RANKS, same, 3, gpus=2)) == ["2 ranks on 1 device(s), expected 2"]
    assert list(problems_of(CASE, same, 3, gpus=2)) == []
    assert list(problems_of(CASE, silent, 3)) == ["1 ranks on 0 device(s), expected 1"]


def test_the_cases_are_what_must_hold() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 7
    for case in CASES:
        spec = parse_shape_spec(case.spec)
        long = case.spec == LONG_SPEC
        assert case.tokens == (LONG_TOKENS if long else 512)
        assert spec.num_blocks >= 2 * (case.tokens // spec.block_size) + 3
    assert sum(case.ranks == 2 for case in CASES) == 2
    assert 32 * chunk_bytes(parse_shape_spec(LONG_SPEC), 256) == 1 << 30


def test_a_figure_below_its_bound_is_too_slow() -> None:
    good = Figure(
        what="fill",
        nbytes=2_000_000_000,
        seconds=[1.0, 0.5, 9.0],
        ratio=0.5,
        to="copy",
        bound=0.5,
    )
    slow = Figure(what="x", nbytes=1, seconds=[1.0], ratio=0.49, to="copy", bound=0.5)
    unknown = Figure(what="y", nbytes=1, seconds=[1.0], to="copy", bound=0.5)
    free = Figure(what="z", nbytes=0, seconds=[1.0])
    assert good.row() == "| fill | 2000000000 | 1000.000 | 2.00 | 0.50 of copy | >= 0.5 |  |"
    assert slow.row().endswith("| TOO SLOW |")
    assert free.row() == "| z | - | 1000.000 | - | - | - |  |"
    assert list(slower_than([good, slow, unknown, free])) == [
        "x reaches 0.49 of copy, expected 0.5",
        "y reaches nothing of copy, expected 0.5",
    ]


def test_the_pace_of_the_real_bench_is_read_from_its_lines() -> None:
    """As lmcache 0.5.6 prints, with one sequence whose warm LOOKUP missed."""
    pace = pace_of(
        [
            (0.0, "Connecting ..."),
            (10.0, "=== Request seq=4 ==="),
            (13.0, "  [seq 4] cold something"),
            (17.0, "  [seq 4] CHECKSUM MATCH OK"),
            (17.5, ""),
            (18.0, "=== Request seq=5 ==="),
            (23.0, ""),
            (24.0, "=== Request seq=6 ==="),
            (31.0, "  [seq 6] CHECKSUM MISMATCH!"),
            (40.0, "Pass rate"),
        ]
    )
    assert pace.sequence_s == (8.0, 6.0, 7.0)
    assert pace.verified == 1


def test_a_sequence_that_never_ended_has_no_time() -> None:
    assert pace_of([(1.0, "=== Request seq=0 ==="), (2.0, "Traceback")]).sequence_s == ()
    assert pace_of([]).sequence_s == ()


def test_a_real_report_fills_the_row(tmp_path: Path) -> None:
    """On the host, which names no devices."""
    words = [*CASE.words(2), "--mode", "cpu"]
    run = run_gpu_bench(None, words, tmp_path / "report.json", within_s=60.0)
    assert run.exit_code == 0, run.explain()
    cells = [cell.strip() for cell in row_of(CASE, run).strip("|").split("|")]
    assert cells[:3] == ["some", "0", "2 / 2"]
    assert all(float(cell) > 0 for cell in (cells[4], cells[6]))
    assert "-" not in cells[:-1]
    assert list(problems_of(CASE, run, 2)) == ["1 ranks on 0 device(s), expected 1"]


def test_runs_are_made_beside_each_other(tmp_path: Path) -> None:
    options = [*CASE.words(1), "--mode", "cpu"]
    plans = {
        "good": Plan(server=None, options=options),
        "bad": Plan(server=None, options=[*options, "--cuda-ipc", "nonsense"]),
        "blind": Plan(server=None, options=CASE.words(1), environment={"CUDA_VISIBLE_DEVICES": ""}),
    }
    found = run_beside(plans, tmp_path, within_s=60.0)
    assert [found[name].exit_code for name in plans] == [0, 2, 1]
    assert "CUDA" in found["blind"].stderr


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-uc", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_line_is_awaited_no_longer_than_said() -> None:
    with python("import time; print('one'); print('two'); time.sleep(60)") as process:
        assert await_line(process, "two", 20.0) == ["one", "two"]
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=r"'three' not said within 0\.3 s"):
            await_line(process, "three", 0.3)
        assert time.monotonic() - started < 20.0
        process.communicate()
    with python("print('one')") as process:
        with pytest.raises(RuntimeError, match="not said before it ended"):
            await_line(process, "two", 20.0)
        process.communicate()


def test_names_in_dev_shm_are_found_by_pid() -> None:
    mine, other = (Path(f"/dev/shm/torch_{pid}_test_1") for pid in (os.getpid(), 999_999_999))
    try:
        for path in (mine, other):
            path.touch()
        assert mine.name in memory_names(os.getpid())
        assert other.name not in memory_names(os.getpid())
    finally:
        for path in (mine, other):
            path.unlink(missing_ok=True)
