"""Resources of both sides over time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchserver.config.watch import GROWTH_BOUNDS
from benchserver.monitor.resources import Resources
from benchserver.monitor.snapshot import ResourceNow

MB = 1e6
HOUR_S = 3600
L1 = 100 * MB


def watched(
    value: Callable[[float], float],
    l1_used: Callable[[float], float] = lambda at_s: 0.0,
    *,
    name: str = "server memory",
    lasts_s: int = 400,
) -> ResourceNow:
    """Return what is known of one resource after so many seconds."""
    resources = Resources(GROWTH_BOUNDS)
    for at_s in range(0, lasts_s, 5):
        resources.see(at_s, {name: value(at_s)}, {"server memory": l1_used(at_s)})
    return called(resources, name)


def called(resources: Resources, name: str) -> ResourceNow:
    return next(one for one in resources.now() if one.name == name)


def test_all_are_there_from_the_begin_with_their_units_and_sides() -> None:
    known = Resources(GROWTH_BOUNDS).now()
    assert [one.name for one in known] == list(GROWTH_BOUNDS)
    assert {one.verdict for one in known} == {"not measured"}
    assert {one.name for one in known if one.unit == "bytes"} == {
        "our memory",
        "server memory",
        "shared memory",
    }
    assert {one.name for one in known if one.side == "ours"} == {
        "our memory",
        "our descriptors",
        "our threads",
    }


def test_a_leak_is_said_in_words() -> None:
    one = watched(lambda at_s: 50 * MB + 360 * MB * at_s / HOUR_S)
    assert one.verdict == "grows"
    assert one.reason == "server memory grows by 360 MB/h (360 to 360), bound 8 MB/h"
    assert one.slope_per_hour == pytest.approx(360 * MB)
    one = watched(lambda at_s: at_s // 5, name="server sessions")
    assert one.reason == "server sessions grow by 720 an hour (720 to 720), bound 6 an hour"


def test_it_is_said_once_that_something_grows_until_it_was_flat() -> None:
    resources, news = Resources(GROWTH_BOUNDS), list[str]()
    for at_s in range(0, 400, 5):
        news += resources.see(at_s, {"server sessions": at_s})
    assert [text.partition(" by")[0] for text in news] == ["server sessions grow"]
    for at_s in range(400, 4000, 5):
        news += resources.see(at_s, {"server sessions": 400})
    assert called(resources, "server sessions").verdict == "flat"
    for at_s in range(4000, 40_000, 5):
        news += resources.see(at_s, {"server sessions": at_s})
    assert len(news) == 2


def test_what_stays_is_flat() -> None:
    one = watched(lambda at_s: 50 * MB)
    assert (one.verdict, one.value, one.bound_per_hour) == ("flat", 50 * MB, 8 * MB)
    assert one.reason == "server memory: 0 MB/h (0 to 0), bound 8 MB/h"


def test_a_short_run_cannot_tell() -> None:
    one = watched(lambda at_s: at_s * MB, lasts_s=100)
    assert (one.verdict, one.reason) == ("cannot tell yet", "it takes 150 s or more to tell")
    assert one.slope_per_hour is None


def test_memory_that_is_l1_filling_up_is_no_leak() -> None:
    one = watched(lambda at_s: 50 * MB + at_s * MB, lambda at_s: at_s * MB)
    assert one.verdict == "flat"
    assert one.reason.endswith("; what is stored in L1 explains its growth")
    assert one.slope_per_hour == pytest.approx(0, abs=1)


def test_a_leak_beside_an_l1_that_fills_up_is_found() -> None:
    one = watched(lambda at_s: 3 * at_s * MB, lambda at_s: at_s * MB)
    assert one.verdict == "grows"
    assert one.slope_per_hour == pytest.approx(2 * HOUR_S * MB)


def test_what_is_evicted_from_l1_is_still_in_memory() -> None:
    def l1_used(at_s: float) -> float:
        return at_s * MB if at_s < 200 else 150 * MB

    one = watched(lambda at_s: min(at_s, 195) * MB, l1_used)
    assert one.verdict == "flat"


def test_an_l1_that_was_in_memory_from_the_start_explains_nothing() -> None:
    leak = 360 * MB / HOUR_S
    one = watched(lambda at_s: L1 + leak * at_s, lambda at_s: min(L1, at_s * MB / 5))
    assert one.verdict == "cannot tell yet"
    assert one.reason.endswith("; its L1 fills up meanwhile")
    one = watched(lambda at_s: L1 + leak * at_s, lambda at_s: min(L1, at_s * 2 * MB))
    assert one.verdict == "grows"


def test_l1_explains_nothing_of_our_own_memory() -> None:
    one = watched(lambda at_s: at_s * MB, lambda at_s: at_s * MB, name="our memory", lasts_s=900)
    assert one.verdict == "grows"


def test_what_the_bench_keeps_of_a_load_is_no_leak_of_ours() -> None:
    resources = Resources(GROWTH_BOUNDS)
    for at_s in range(0, 900, 5):
        kept = at_s * MB / 5
        resources.see(at_s, {"our memory": 50 * MB + 1.1 * kept}, {"our memory": kept})
    one = called(resources, "our memory")
    assert one.verdict == "cannot tell yet"
    assert one.reason.endswith("; what the bench keeps of the load grows meanwhile, up to a bound")


def test_what_is_not_seen_is_said_and_what_was_seen_counts_on() -> None:
    resources = Resources(GROWTH_BOUNDS)
    resources.unseen(["server threads"], "it is far away")
    assert called(resources, "server threads").verdict == "not measured"
    assert called(resources, "server threads").reason == "it is far away"
    for at_s in range(0, 400, 5):
        resources.see(at_s, {"server threads": 4})
    resources.unseen(["server threads"], "it is far away")
    one = called(resources, "server threads")
    assert (one.verdict, one.value) == ("flat", None)


def test_a_server_that_is_another_process_begins_anew_and_we_do_not() -> None:
    resources = Resources(GROWTH_BOUNDS)
    for at_s in range(0, 800, 5):
        if at_s == 400:
            resources.begin_anew(400.4, "process 7 is gone, now it is 8")
        resources.see(at_s, {"server threads": at_s // 400, "our threads": 3})
    one, ours = called(resources, "server threads"), called(resources, "our threads")
    assert one.verdict == "flat"
    assert one.reason.endswith("; counted from 400 s on: process 7 is gone, now it is 8")
    assert "counted from" not in ours.reason
    assert resources.samples()["server threads"][0] == (400, 1)
    assert resources.samples()["our threads"][0] == (0, 3)


def test_one_connection_more_within_an_hour_is_no_leak() -> None:
    for then_s in range(0, 3600, 300):
        one = watched(lambda at_s: 24 + (at_s > then_s), name="our descriptors", lasts_s=3600)  # noqa: B023
        assert one.verdict == "flat", then_s
