"""Service levels: what they mean, and what is none."""

from __future__ import annotations

import pytest

from benchserver.errors import UsageError
from benchserver.sweep.figures import figures_of
from benchserver.sweep.slo import parse_slo
from tests.benchserver.sweep.reports import report


@pytest.mark.parametrize(
    ("text", "figure", "relation", "bound"),
    [
        ("retrieve.p99<50ms", "retrieve.p99", "<", 50.0),
        (" store.p50 <= 0.5 s ", "store.p50", "<=", 500.0),
        ("lookup.max<250us", "lookup.max", "<", 0.25),
        ("ttft.p90<1s", "response.p90", "<", 1000.0),
        ("service.p99.9<=1ms", "service.p999", "<=", 1.0),
        ("hit_ratio>=0.5", "hit_ratio", ">=", 0.5),
        ("hit_ratio>60%", "hit_ratio", ">", 0.6),
    ],
)
def test_conditions(text: str, figure: str, relation: str, bound: float) -> None:
    (found,) = parse_slo([text])
    assert (found.figure, found.relation) == (figure, relation)
    assert found.bound == pytest.approx(bound)
    assert found.text == text.strip()


def test_several() -> None:
    found = parse_slo(["retrieve.p99<50ms and hit_ratio>0.4", "store.p50<1s"])
    assert [condition.figure for condition in found] == ["retrieve.p99", "hit_ratio", "store.p50"]
    assert parse_slo([]) == ()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("retrieve.p99<12ms", False),
        ("retrieve.p99<=12ms", True),
        ("retrieve.p99<12.1ms", True),
        ("hit_ratio>0.5", False),
        ("hit_ratio>=50%", True),
        ("service.p50<1s", None),
    ],
)
def test_what_keeps_it(text: str, kept: bool | None) -> None:
    (condition,) = parse_slo([text])
    assert condition.kept_by(figures_of(report()).values) is kept


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a figure, a relation and a bound"),
        ("fast", "expected a figure, a relation and a bound"),
        ("retrieve.p99=50ms", "expected a figure, a relation and a bound"),
        ("retrieve.p99<-5ms", "expected a figure, a relation and a bound"),
        ("retrieve.p99<nanms", "expected a figure, a relation and a bound"),
        ("retrieve.p99<50", "expected a unit, one of us, ms, s"),
        ("retrieve.p99<50%", "expected a unit, one of us, ms, s"),
        ("retrieve.p99<0ms", "nothing takes no time"),
        ("retrieve.p98<5ms", "no such statistic; known: p50, p90, p99, p999, max, mean"),
        ("retrieve<5ms", "no such figure"),
        ("ping.p50<5ms", "no such figure; there is hit_ratio, and one of lookup, retrieve"),
        ("hit_ratio>50", "a ratio is a number from 0 to 1"),
        ("hit_ratio>5ms", "a ratio is a number from 0 to 1"),
        ("retrieve.p99<5ms and", "expected a figure, a relation and a bound"),
    ],
)
def test_what_is_no_condition(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slo([text])
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
