"""What a load is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchserver.clock import NS_PER_S
from benchserver.errors import UsageError
from benchserver.scenarios.load.config import parse_verify, verified
from tests.benchserver.scenarios.load.made import config
from tests.benchserver.stage.runs import MakeEngine


@pytest.mark.parametrize(
    ("text", "share"), [("all", 1.0), ("off", 0.0), ("sample:0.1", 0.1), ("sample:1", 1.0)]
)
def test_a_share_of_hits_is_verified(text: str, share: float) -> None:
    assert parse_verify(text) == share
    assert config(verify=text).verified_share == share


@pytest.mark.parametrize(
    "text", ["", "some", "sample", "sample:", "sample:0", "sample:-1", "sample:1.1", "sample:nan"]
)
def test_what_is_no_share_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"--verify .*expected all, off, or sample:P") as error:
        config(verify=text).check()
    assert "\n" not in str(error.value)


def test_a_sample_is_drawn_from_the_seed() -> None:
    drawn = [verified(0.25, 7, number) for number in range(4000)]
    assert 900 < sum(drawn) < 1100
    assert drawn == [verified(0.25, 7, number) for number in range(4000)]
    assert drawn != [verified(0.25, 8, number) for number in range(4000)]
    assert all(verified(1.0, 7, number) for number in range(100))
    assert not any(verified(0.0, 7, number) for number in range(100))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"duration_s": 1.0, "requests": 1}, "--duration and --requests exclude each other"),
        ({"rate": ""}, "--rate is empty: expected requests a second"),
        ({"rate": "0"}, "--rate 0: 0 is out of range"),
        ({"rate": "nan"}, "--rate nan"),
        ({"rate": "1e9"}, "--rate 1e9"),
        ({"rate": "20:10:5"}, "--rate 20:10:5"),
        ({"workload": "nothing"}, "--workload nothing"),
        ({"speedup": 2.0}, "--speedup is for --workload trace:FILE"),
        ({"max_input_tokens": 2}, "--max-input-tokens is for --workload trace:FILE"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        config(**changes).check()


@pytest.mark.parametrize(
    ("changes", "end_s"),
    [
        ({}, None),
        ({"duration_s": 5.0, "warmup_s": 2.0}, 7),
        ({"rate": "10"}, None),
        ({"rate": "10:30:10", "step_duration_s": 4.0}, 12),
        ({"rate": "10:30:10", "step_duration_s": 4.0, "duration_s": 5.0}, 5),
        ({"rate": "10:30:10", "step_duration_s": 4.0, "duration_s": 50.0}, 12),
    ],
)
def test_what_says_when_the_last_request_leaves(changes: dict[str, Any], end_s: int | None) -> None:
    asked = config(**{"requests": None, **changes})
    asked.check()
    assert asked.end_ns == (None if end_s is None else end_s * NS_PER_S)


def test_prefill_takes_as_long_as_its_tokens() -> None:
    assert config(prefill_tokens_per_s=1000.0).prefill_ns(500) == NS_PER_S // 2
    assert config().prefill_ns(500) == 0
    assert (config().units, config().steps) == (4, ())


def test_a_trace_says_how_long_requests_are_and_is_read_once(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 900, "output_length": 1, "hash_ids": [0, 1]}\n'
    )
    asked = config(workload=f"trace:{path}")
    asked.check()
    cut = config(workload=f"trace:{path}", max_input_tokens=600)
    assert cut.engine(make_engine()).num_tokens == 600
    engine = asked.engine(make_engine())
    assert (engine.num_tokens, engine.num_tokens_given) == (900, True)
    path.unlink()
    assert asked.engine(make_engine()) == engine
    unique = config()
    assert unique.engine(make_engine()) == make_engine()
