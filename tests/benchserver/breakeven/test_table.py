"""The answer as lines and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from benchserver.breakeven.measured import read_run
from benchserver.breakeven.model import Hit
from benchserver.breakeven.question import Network, Question
from benchserver.breakeven.table import document, lines
from tests.benchserver.breakeven.reports import report, written

GIB = 1024.0**3
NETWORKS = (Network(4 * GIB, "4GiB/s"), Network(24 * GIB, "24GiB/s"))
LARGE = Question(
    Hit(payload_bytes=GIB, saved_s=0.12, fixed_s=0.003, device_bytes_per_s=24 * GIB), NETWORKS
)
SMALL = Question(
    Hit(payload_bytes=GIB / 16, saved_s=0.0075, fixed_s=0.01, device_bytes_per_s=24 * GIB),
    NETWORKS[:1],
)


def test_the_table_of_the_document() -> None:
    assert list(lines(LARGE, None)) == [
        "A hit moves 1 GiB, to the device at 24 GiB/s, after 3.0 ms of fixed cost; "
        "it saves 120.0 ms of prefill.",
        "",
        "network                   serial              gain    pipelined              gain",
        "4GiB/s                  294.7 ms    -174.7 ms loss     253.0 ms    -133.0 ms loss",
        "24GiB/s                  86.3 ms     +33.7 ms gain      44.7 ms     +75.3 ms gain",
        "none (in the host)       44.7 ms     +75.3 ms gain      44.7 ms     +75.3 ms gain",
        "",
        "With one leg after the other, a hit pays above 13.27 GiB/s of network.",
        "With both legs at once, a hit pays above 8.547 GiB/s of network.",
    ]


def test_a_hit_that_never_pays() -> None:
    assert list(lines(SMALL, None))[-2:] == [
        "With one leg after the other, a hit never pays: the fixed cost alone is 10.0 ms.",
        "With both legs at once, a hit never pays: the fixed cost alone is 10.0 ms.",
    ]


def test_nothing_won_and_nothing_lost() -> None:
    even = Hit(payload_bytes=GIB, saved_s=0.5, fixed_s=0.0, device_bytes_per_s=4 * GIB)
    assert "+0.0 ms even" in list(lines(Question(even, NETWORKS[:1]), None))[3]


def test_a_run_is_named_and_one_that_failed_too(tmp_path: Path) -> None:
    path = written(tmp_path, report())
    said = list(lines(LARGE, read_run(path)))
    assert said[0] == (f"Run {path}: 512 tokens, 16 MiB, LOOKUP 1.2 ms, RETRIEVE at 7.451 GiB/s.")
    assert said[1].startswith("A hit moves")
    failed = list(lines(LARGE, read_run(written(tmp_path, report(verdict="unknown")))))
    assert failed[1] == "That run did not pass: its figures may be those of wrong bytes."


def test_json(tmp_path: Path) -> None:
    found = json.loads(json.dumps(document(LARGE, None), allow_nan=False))
    assert found["payload_bytes"] == 1 << 30
    assert (found["saved_ms"], found["fixed_ms"]) == (120.0, 3.0)
    assert found["run"] is None
    networks = [row["network_bytes_per_s"] for row in found["rows"]]
    assert networks == [4 * GIB, 24 * GIB, None]
    assert round(found["rows"][0]["serial_ms"], 1) == 294.7
    assert round(found["rows"][0]["pipelined_ms"], 1) == 253.0
    assert round(found["rows"][1]["serial_gain_ms"], 1) == 33.7
    assert round(found["turns"]["serial"]["network_bytes_per_s"] / GIB, 2) == 13.27
    never = document(SMALL, read_run(written(tmp_path, report())))
    assert never["turns"]["pipelined"] == {
        "network_bytes_per_s": None,
        "why_never": "the fixed cost alone is 10.0 ms",
    }
    assert never["run"]["tokens"] == 512
