"""How the chunks of a model fare, by what servers say at /metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.counters import Counters, read_counters

REAL = """\
# HELP lmcache_mp_l1_evicted_chunks_total Count of evicted chunks
lmcache_mp_l1_evicted_chunks_total{l1_tag="_default"} 24.0
lmcache_mp_l1_usage_ratio{backend="dram",l1_tag="_default"} 0.8544924453418258
lmcache_mp_lookup_requested_tokens_total{cache_salt="",model_name="ours"} 226816.0
lmcache_mp_lookup_requested_tokens_total{cache_salt="other",model_name="ours"} 1024.0
lmcache_mp_lookup_requested_tokens_total{cache_salt="",model_name="theirs"} 7.0
lmcache_mp_lookup_hit_tokens_total{cache_salt="",model_name="ours"} 14848.0
lmcache_mp_lookup_hit_l1_tokens_total{cache_salt="",model_name="ours"} 14000.0
lmcache_mp_lookup_hit_l2_tokens_total{cache_salt="",model_name="ours"} 848.0
lmcache_mp_l1_allocation_failure_chunks_total{during="l1_store",model_name="ours"} 8.0
lmcache_mp_l1_allocation_failure_chunks_total{during="l1_store",model_name="theirs"} 100.0
lmcache_mp_l1_allocation_failure_chunks_total{during="l2_prefetch",model_name="ours"} 3.0
lmcache_mp_l2_prefetch_failure_chunks_total{model_name="ours",reason="l1_oom"} 1.2e+01 1796089836
lmcache_mp_l1_read_failure_chunks_total{during="l2_store",model_name="ours"} 2.0
"""
"""Of 0.5.6, as far as it matters; a model of others runs beside ours."""

EMBEDDED = """\
bench_embedded_evicted_objects_total 5.0
bench_embedded_refused_objects_total 4.0
bench_embedded_lookup_tokens_total 512.0
bench_embedded_lookup_hit_tokens_total 256.0
"""


def test_a_real_server_counts_other_models_apart() -> None:
    assert read_counters(REAL, "ours") == Counters(
        dropped_chunks=8,
        evicted_chunks=24,
        unread_chunks=2,
        unloaded_chunks=15,
        asked_tokens=227840,
        hit_tokens=14848,
        hit_l1_tokens=14000,
        hit_l2_tokens=848,
    )


def test_the_embedded_server() -> None:
    assert read_counters(EMBEDDED, "any") == Counters(
        dropped_chunks=4, evicted_chunks=5, asked_tokens=512, hit_tokens=256
    )


def test_a_counter_without_an_event_is_not_shown_and_counts_nothing() -> None:
    assert read_counters("lmcache_mp_l1_eviction_loop_ticks_total 3", "ours") == Counters()


@pytest.mark.parametrize("text", ["", "process_cpu_seconds_total 3", '{"detail":"Not Found"}'])
def test_a_text_that_is_not_of_an_mp_server_tells_nothing(text: str) -> None:
    assert read_counters(text, "ours") is None


def test_a_model_with_letters_that_the_format_escapes() -> None:
    name = 'a "b" \\c}'
    line = r'lmcache_mp_lookup_hit_tokens_total{model_name="a \"b\" \\c}"} 9'
    assert read_counters(line, name) == Counters(hit_tokens=9)
    assert read_counters(line, "a") == Counters()


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-3", "1e999", "1.2.3", ""])
def test_numbers_that_count_nothing(number: str) -> None:
    line = f"lmcache_mp_l1_evicted_chunks_total {number}"
    assert read_counters(line, "ours") == Counters()


@given(st.text(max_size=400), st.text(max_size=20))
def test_any_text_can_be_read(text: str, model_name: str) -> None:
    assert read_counters(text, model_name) in (None, Counters())
    held = read_counters(f"lmcache_mp_x 1\n{text}", model_name)
    assert held is not None


def test_what_was_counted_since() -> None:
    before, after = Counters(dropped_chunks=3), Counters(dropped_chunks=5, hit_tokens=7)
    assert after.since(before) == Counters(dropped_chunks=2, hit_tokens=7)
    assert before.since(after) is None, "a server that was restarted counts from 0"
