"""The last readings of a run, and small charts of them."""

from __future__ import annotations

from benchserver.report.trends import ASCII_BLOCKS, BLOCKS, KEPT, Trends, spark
from tests.benchserver.report.snapshots import operation, resource, snapshot

STORE, MEMORY = operation("STORE"), resource("server memory")


def test_readings_in_order_and_gaps_where_nothing_was_known() -> None:
    trends = Trends()
    trends.take(snapshot(units_per_s=1.0, operations=(), resources=()))
    trends.take(snapshot(units_per_s=2.0, operations=(operation("STORE", p99_ms=7.0),)))
    trends.take(snapshot(units_per_s=3.0, operations=(), resources=(resource("other"),)))
    assert trends.work() == (1.0, 2.0, 3.0)
    assert trends.latency(STORE) == (None, 7.0, None)
    assert trends.use(MEMORY) == (None, float(1 << 30), None)
    assert trends.latency(operation("never")) == ()


def test_one_name_on_both_sides_is_two_resources() -> None:
    trends = Trends()
    ours = resource("memory", side="ours", value=1.0)
    trends.take(snapshot(resources=(ours, resource("memory", value=2.0))))
    assert (trends.use(ours), trends.use(resource("memory"))) == ((1.0,), (2.0,))


def test_memory_is_bounded() -> None:
    trends = Trends()
    for number in range(2 * KEPT):
        trends.take(snapshot(units_per_s=float(number), operations=(), resources=()))
    trends.take(snapshot(operations=(STORE,), units_per_s=-1.0))
    assert len(trends.work()) == len(trends.latency(STORE)) == KEPT
    assert trends.work()[0] == KEPT + 1
    assert trends.latency(STORE) == (*[None] * (KEPT - 1), 2.5)


def test_charts() -> None:
    rising = [float(number) for number in range(8)]
    assert spark(rising, 8, BLOCKS, from_zero=True) == BLOCKS
    assert spark(rising, 8, ASCII_BLOCKS, from_zero=True) == ASCII_BLOCKS
    assert spark(rising, 3, BLOCKS, from_zero=False) == "▁▅█"
    assert spark([None, 4.0, None, 8.0], 4, BLOCKS, from_zero=True) == " ▅ █"
    # What hardly changes is a level line: half of what can be shown, or nothing.
    assert spark([100.0, 101.0], 4, BLOCKS, from_zero=False) == "▄▄"
    assert spark([0.0, 0.0], 4, BLOCKS, from_zero=True) == "▁▁"
    assert spark([5.0, 5.0], 4, BLOCKS, from_zero=True) == "██"
    assert spark([None], 4, BLOCKS, from_zero=True) == ""
    assert spark(rising, 0, BLOCKS, from_zero=True) == ""


def test_the_least_of_all_numbers_has_a_height_too() -> None:
    assert spark([5e-324, 0.0], 2, "_#", from_zero=True) == "#_"
