"""What a run is asked of growth."""

from __future__ import annotations

import pytest

from benchserver.config.watch import GROWTH_BOUNDS, MEMORY, Watch, parse_bounds
from benchserver.errors import UsageError


def test_every_resource_has_a_bound() -> None:
    assert Watch().bounds == GROWTH_BOUNDS
    assert set(GROWTH_BOUNDS) > MEMORY


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("", {}),
        ("server memory=8MB/h", {"server memory": 8e6}),
        (" our memory = 1.5 GB / h ,our threads=0", {"our memory": 1.5e9, "our threads": 0.0}),
        ("server memory=100", {"server memory": 100.0}),
        ("shared memory=3kB", {"shared memory": 3e3}),
    ],
)
def test_bounds_are_read(text: str, bounds: dict[str, float]) -> None:
    assert parse_bounds(text) == bounds
    assert Watch(growth_bounds=text).bounds == {**GROWTH_BOUNDS, **bounds}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory=8MB/h", "a bound is about our memory, our descriptors,"),
        ("server memory", "expected bounds such as"),
        ("server memory=8MiB/h", "expected bounds such as"),
        ("server memory=-1", "expected bounds such as"),
        ("server memory=8MB/h,", "expected bounds such as"),
        ("our threads=2MB/h", "our threads are counted, they have no MB"),
    ],
)
def test_anything_else_is_wrong_usage(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="--growth-bound") as raised:
        Watch(growth_bounds=text).check()
    assert said in str(raised.value)
