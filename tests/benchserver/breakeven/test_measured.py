"""What a run's report says of a hit, and files that are none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchserver.breakeven.measured import read_run
from benchserver.errors import UsageError
from tests.benchserver.breakeven.reports import report, written


def refusal(path: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_run(path)
    text = str(caught.value)
    assert text.startswith("--run ")
    assert "\n" not in text
    return text


def test_a_run_of_two_ranks(tmp_path: Path) -> None:
    path = written(tmp_path, report())
    run = read_run(path)
    # (K and V) x 8 heads x 128 elements x 2 bytes x 4 layers = 16 KiB a token and rank.
    assert run.payload_bytes == 2 * 512 * 16384
    assert run.tokens == 512
    assert run.lookup_s == 0.00125
    assert run.retrieve_bytes_per_s == 8e9
    assert run.passed
    assert run.path == path


def test_a_load_whose_requests_differ(tmp_path: Path) -> None:
    """Three hits of two ranks each, of 2, 2 and 5 chunks: 768 tokens in the mean."""
    chunk = 256 * 16384
    changes: dict[str, Any] = {
        "load": {"bytes": {"stored": 7, "retrieved": 9 * 2 * chunk}},
        "latency": {"LOOKUP": {"p50_ms": 2.5}, "RETRIEVE": {"count": 6}},
    }
    run = read_run(written(tmp_path, report(**changes)))
    assert run.tokens == 768
    assert run.payload_bytes == 768 * 16384 * 2
    assert run.lookup_s == 0.0025
    changes["load"]["bytes"]["retrieved"] = 0
    text = refusal(written(tmp_path, report(**changes)))
    assert "retrieved is 0, expected a whole number" in text


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    assert not read_run(written(tmp_path, report(verdict="invalid"))).passed


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": 2}, "format 2, expected 1"),
        ({"config": {}}, "no tp_size"),
        ({"config": None}, "not the JSON report"),
        ({"config": {"spec": "nonsense", "num_tokens": 512, "tp_size": 1}}, "not the JSON report"),
        ({"config": {"spec": 7, "num_tokens": 512, "tp_size": 1}}, "not the JSON report"),
        ({"server": {"chunk_tokens": 0}}, "chunk_tokens is 0, expected a whole number"),
        ({"server": {"chunk_tokens": True}}, "chunk_tokens is True"),
        ({"server": {"chunk_tokens": 1024}}, "its sequences fill no chunk"),
        ({"latency": {}}, "no LOOKUP warm"),
        ({"latency": []}, "not the JSON report"),
        ({"latency": {"LOOKUP warm": {"p50_ms": -1}}}, "p50_ms is -1, expected a number above 0"),
        ({"throughput_gb_per_s": {}}, "no RETRIEVE"),
        ({"throughput_gb_per_s": {"RETRIEVE": float("nan")}}, "RETRIEVE is nan"),
        ({"throughput_gb_per_s": {"RETRIEVE": "fast"}}, "RETRIEVE is fast"),
    ],
)
def test_a_report_without_a_hit(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in refusal(written(tmp_path, report(**changes)))


@pytest.mark.parametrize("document", [[], 7, None, "text", {}, {"format": 1}])
def test_other_json(tmp_path: Path, document: Any) -> None:
    assert "not the JSON report of a run" in refusal(written(tmp_path, document))


@pytest.mark.parametrize("content", [b"", b"not json", b"\xff\xfe", b"[" * 100_000, b'{"a": 1'])
def test_no_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    assert "not JSON" in refusal(str(path))


def test_no_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(str(tmp_path / "none.json"))
    assert "not a file" in refusal(str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    assert "not a file" in refusal(str(tmp_path / "fifo"))
    assert "null" in refusal("a\0b")
    long = tmp_path / "long"
    with long.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "longer than" in refusal(str(long))
