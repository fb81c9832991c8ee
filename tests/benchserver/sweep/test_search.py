"""The search for the highest rate, against servers that keep a level up to a rate of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.sweep.figures import figures_of
from benchserver.sweep.search import MOST_RUNS, Found, Kept, Probe, found, judged, next_rate
from benchserver.sweep.slo import parse_slo
from tests.benchserver.sweep.reports import report

LEVEL = parse_slo(["retrieve.p99<50ms"])
MOST = 10_000.0


def searched(limit: float, first: float = 8.0, most: float = MOST) -> tuple[Found, list[Probe]]:
    """Search a server that keeps the level up to `limit`."""
    tried: list[Probe] = []
    while (rate := next_rate(tried, first, most)) is not None:
        kept = Kept.KEPT if rate <= limit else Kept.BROKEN
        tried.append(Probe(rate=rate, kept=kept, why="slow"))
    return found(tried, most), tried


@given(limit=st.floats(0.1, 9000.0, allow_nan=False), first=st.floats(0.5, 500.0, allow_nan=False))
def test_the_rate_is_found_to_5_per_cent(limit: float, first: float) -> None:
    result, tried = searched(limit, first)
    assert len(tried) <= MOST_RUNS
    assert result.tried == len(tried)
    assert result.complete
    assert result.rate is not None
    assert result.rate <= limit <= result.rate * 1.06
    assert len({probe.rate for probe in tried}) == len(tried)


def test_doubling_then_bisection() -> None:
    result, tried = searched(50.0)
    assert [probe.rate for probe in tried] == [8, 16, 32, 64, 48, 56, 52, 50]
    assert result == Found(rate=50.0, why="not at 52/s: slow", complete=True, tried=8)


def test_the_greatest_rate_is_enough() -> None:
    result, tried = searched(1e9, most=20.0)
    assert [probe.rate for probe in tried] == [8, 16, 20]
    assert result == Found(rate=20.0, why="kept at --max-rate 20", complete=True, tried=3)
    assert next_rate([], 8.0, 2.0) == 2.0


def test_a_level_that_nothing_keeps() -> None:
    result, tried = searched(0.0)
    assert result.rate is None
    assert result.complete
    assert result.why == "not kept at 0.03125/s either"
    assert len(tried) == 9


def test_what_says_nothing_ends_it() -> None:
    tried = [Probe(rate=8.0, kept=Kept.KEPT), Probe(rate=16.0, kept=Kept.NO_ANSWER, why="late")]
    assert next_rate(tried, 8.0, MOST) is None
    expected = Found(rate=8.0, why="ended at 16/s: late", complete=False, tried=2)
    assert found(tried, MOST) == expected


def test_no_search_goes_on_for_ever() -> None:
    tried = [Probe(rate=float(n), kept=Kept.KEPT) for n in range(1, MOST_RUNS + 1)]
    assert next_rate(tried, 8.0, MOST) is None
    assert not found(tried, MOST).complete


def test_a_lucky_run_above_a_broken_rate_is_not_believed() -> None:
    tried = [
        Probe(rate=8.0, kept=Kept.KEPT),
        Probe(rate=16.0, kept=Kept.BROKEN, why="slow"),
        Probe(rate=32.0, kept=Kept.KEPT),
    ]
    assert next_rate(tried, 8.0, MOST) == 12.0


@pytest.mark.parametrize(
    ("figures", "kept", "why"),
    [
        (report(), Kept.KEPT, ""),
        (report(p99_ms=60.0), Kept.BROKEN, "retrieve.p99 was 60, asked: retrieve.p99<50ms"),
        (
            report(valid=False, limit="server"),
            Kept.BROKEN,
            "the server did not keep up with the rate",
        ),
        (
            report(valid=False, limit="harness"),
            Kept.NO_ANSWER,
            "the run is invalid as a measurement: the limit was the harness: late",
        ),
        (report(valid=False), Kept.NO_ANSWER, "invalid as a measurement: no limit is known"),
        (report(verdict="unknown"), Kept.NO_ANSWER, "the run is not proven"),
    ],
)
def test_what_a_run_says(figures: dict[str, object], kept: Kept, why: str) -> None:
    probe = judged(5.0, figures_of(figures), LEVEL)
    assert probe.kept is kept
    assert why in probe.why


def test_a_figure_that_is_missing_is_not_kept() -> None:
    probe = judged(5.0, figures_of(report()), parse_slo(["service.p99<1s"]))
    assert probe == Probe(rate=5.0, kept=Kept.NO_ANSWER, why="the run has no service.p99")
