"""The log of histograms, read back by the reader of the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from benchserver.report.hdr import hdr_log
from benchserver.result import RunResult
from benchserver.section import Section
from benchserver.stats.measures import Measures, Series

GoodResult = Callable[..., RunResult]
WARM = Series("LOOKUP", "warm")


def test_each_series_is_a_tagged_histogram_that_the_usual_reader_reads(
    good_result: GoodResult, tmp_path: Path
) -> None:
    measures = Measures([WARM, Series("STORE"), Series("PING")])
    for number in range(1, 101):
        measures.latencies[WARM].add(number * 1_000_000)
    measures.latencies[Series("STORE")].add(5_000_000)
    record = Section(
        key="run", title="", lines=(), document={"started_at": "2026-01-02T03:04:05.5+00:00"}
    )
    (tmp_path / "run.hdr").write_bytes(hdr_log(good_result(measures=measures, sections=(record,))))
    lines = (tmp_path / "run.hdr").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines[4:]] == ["Tag=LOOKUP_warm", "Tag=STORE"]
    assert lines[1].startswith("#[StartTime: 1767323045.500 (seconds since epoch)")
    assert lines[4].split(",")[1:4] == ["1767323045.500", "1.234", "100.000"]
    reader: Any = HistogramLogReader(str(tmp_path / "run.hdr"), HdrHistogram(1, 3_600_000_000, 3))
    whole = reader.get_next_interval_histogram()
    assert whole.get_total_count() == 100
    assert whole.get_value_at_percentile(50) == pytest.approx(50_000, rel=0.001)
    assert reader.get_next_interval_histogram().get_total_count() == 1
    reader.close()


def test_a_run_without_a_record_has_a_log_too(good_result: GoodResult) -> None:
    assert b"#[StartTime: 0.000" in hdr_log(good_result(measures=Measures()))
