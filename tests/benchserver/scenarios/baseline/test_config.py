"""The baseline's part of a run's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from benchserver.config import RunConfig
from benchserver.scenarios.baseline.config import BaselineConfig, baseline_config


def test_every_option_is_the_run_s(make_config: Callable[..., RunConfig]) -> None:
    changes = {
        "seed": 11,
        "start": 3,
        "end": 9,
        "interval_s": 0.25,
        "expect_warm": True,
        "visible_within_s": 4.5,
        "partial_every": 6,
        "partial_skip": "chunks",
    }
    config = baseline_config(make_config(**changes))
    assert {field.name: getattr(config, field.name) for field in fields(BaselineConfig)} == changes


def test_turns_are_the_numbers_of_all_sequences(make_config: Callable[..., RunConfig]) -> None:
    assert baseline_config(make_config(start=3, end=6)).turns == range(3, 6)
    forever = baseline_config(make_config(start=3, end=None)).turns
    assert forever.start == 3
    assert len(forever) > 1 << 39
