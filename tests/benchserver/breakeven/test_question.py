"""What is asked: options first, a run's figures for the rest, one line for what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchserver.breakeven.measured import read_run
from benchserver.breakeven.model import Hit
from benchserver.breakeven.options import BREAKEVEN, NETWORKS
from benchserver.breakeven.question import Network, question
from benchserver.errors import UsageError
from benchserver.options.kinds import Texts
from benchserver.options.option import options_in
from tests.benchserver.breakeven.reports import report, written

GIB = 1024.0**3
SAID = {"payload": "1GiB", "saved": "120ms", "fixed": "3ms", "device_bandwidth": "24GiB/s"}


def options(**given: Any) -> dict[str, Any]:
    rows = options_in(BREAKEVEN)
    nothing = {row.key: () if isinstance(row.kind, Texts) else None for row in rows}
    assert given.keys() <= nothing.keys()
    return nothing | given


def test_what_is_said() -> None:
    asked = question(options(**SAID, network_bandwidth=("24GiB/s", "4GiB/s", "4096MiB/s")), None)
    assert asked.hit == Hit(
        payload_bytes=GIB, saved_s=0.12, fixed_s=0.003, device_bytes_per_s=24 * GIB
    )
    assert [network.bytes_per_s for network in asked.networks] == [4 * GIB, 24 * GIB]
    assert asked.networks[1] == Network(24 * GIB, "24GiB/s")


def test_networks_that_hosts_have() -> None:
    networks = question(options(**SAID), None).networks
    assert [network.text for network in networks] == list(NETWORKS)


def test_saved_time_out_of_tokens() -> None:
    said = {**SAID, "saved": None, "tokens": 8192, "prefill_tokens_per_s": 16384.0}
    assert question(options(**said), None).hit.saved_s == 0.5


def test_a_run_says_what_is_not_given(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, report()))
    hit = question(options(prefill_tokens_per_s=5120.0), run).hit
    assert hit == Hit(
        payload_bytes=2 * 512 * 16384, saved_s=0.1, fixed_s=0.00125, device_bytes_per_s=8e9
    )
    assert question(options(**SAID), run).hit == question(options(**SAID), None).hit
    assert question(options(tokens=1024, prefill_tokens_per_s=5120.0), run).hit.saved_s == 0.2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"payload": None}, "--payload is missing: say 1GiB, 64MiB or 500MB, or --run RUN.json"),
        ({"fixed": None}, "--fixed is missing"),
        ({"device_bandwidth": None}, "--device-bandwidth is missing"),
        ({"saved": None}, "--saved is missing: say 120ms, "),
        ({"saved": None, "tokens": 5}, "--saved is missing"),
        ({"saved": None, "prefill_tokens_per_s": 5.0}, "--tokens is missing"),
        ({"tokens": 5}, "--saved and --tokens"),
        ({"prefill_tokens_per_s": 5.0}, "--saved and --prefill-tokens-per-s"),
        ({"saved": "0ms"}, "--saved '0ms': out of range"),
        ({"fixed": "-3ms"}, "--fixed '-3ms': expected a number"),
        ({"payload": "nan"}, "--payload 'nan': expected a number"),
        ({"device_bandwidth": "0GiB/s"}, "--device-bandwidth '0GiB/s': out of range"),
        ({"network_bandwidth": ("4GiB/s", "0B/s")}, "--network-bandwidth '0B/s': out of range"),
        ({"network_bandwidth": ("4GiB/s",) * 1001}, "--network-bandwidth: 1001 rows, expected"),
    ],
)
def test_what_is_missing_or_wrong(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        question(options(**{**SAID, **changes}), None)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
