"""The counters of failures in what servers say at /metrics."""

from __future__ import annotations

import pytest

from protocol.metrics import FAILURES, read_failures

REAL = """\
# HELP lmcache_mp_l1_allocation_failure_chunks_total Count of L1 memory allocation failures (OOM)
# TYPE lmcache_mp_l1_allocation_failure_chunks_total counter
lmcache_mp_l1_allocation_failure_chunks_total{during="l1_store",model_name="bench-server"} 56.0
lmcache_mp_l1_allocation_failure_chunks_total{during="l2_prefetch",model_name="a } b"} 1.2e+01
lmcache_mp_num_submitted_stores_total{device="cpu"} 60.0
lmcache_mp_l1_usage_ratio{backend="dram",l1_tag="_default"} 1.0
lmcache_mp_l1_read_failure_total{during="l2_store",reason="x"} 0.0
"""


def test_a_real_server() -> None:
    assert read_failures(REAL) == {
        "lmcache_mp_l1_allocation_failure": 68,
        "lmcache_mp_l1_read_failure": 0,
    }


def test_every_counter_is_found_with_and_without_labels() -> None:
    for name in FAILURES:
        assert read_failures(f'{name}_total 3\n{name}_keys_total{{a="b"}} 4 1796089836') == {
            name: 7
        }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "bench_embedded_refused_reservations_total NaN",
        "bench_embedded_refused_reservations_total +Inf",
        "bench_embedded_refused_reservations_total -3",
        "bench_embedded_refused_reservations_total 1e999",
        "bench_embedded_refused_reservations_total 1.2.3",
        "bench_embedded_refused_reservations_created 1.7e9",
        "x_bench_embedded_refused_reservations_total 3",
        "bench_embedded_refused_reservations_total",
        '{"a": 1}',
    ],
)
def test_lines_that_count_nothing(line: str) -> None:
    assert read_failures(line) == {}
