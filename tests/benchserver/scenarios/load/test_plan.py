"""What comes next, when, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from benchserver.load.request import Part, Request
from benchserver.scenarios.load.plan import Plan, Turns


def requests(count: int = 100) -> Iterator[Request]:
    return (Request(number=number, parts=(Part("a", 1),)) for number in range(count))


def every_ten() -> Iterator[int]:
    return iter(range(0, 1000, 10))


def plan(
    count: int = 100,
    instants: Callable[[], Iterator[int]] | None = None,
    *,
    most: int | None = None,
    end_ns: int | None = None,
) -> Plan:
    return Plan(requests(count), instants, most=most, end_ns=end_ns)


def taken(one: Plan, now_ns: int = 0) -> list[tuple[int, int | None]]:
    found = []
    while (arrival := one.take(now_ns)) is not None:
        found.append((arrival.request.number, arrival.due_ns))
    return found


def test_a_closed_loop_takes_what_is_next() -> None:
    one = plan(3)
    assert not one.is_open
    assert taken(one) == [(0, None), (1, None), (2, None)]
    assert one.due(50) == 0
    assert taken(plan(most=2)) == [(0, None), (1, None)]


def test_nothing_is_taken_when_time_is_over() -> None:
    one = plan(end_ns=50)
    assert (one.over(49), one.over(50)) == (False, True)
    assert one.take(49) is not None
    assert one.take(50) is None


def test_an_open_loop_takes_requests_with_their_instants() -> None:
    one = plan(instants=every_ten, end_ns=30)
    assert one.is_open
    assert taken(one) == [(0, 0), (1, 10), (2, 20)]
    assert taken(plan(2, every_ten)) == [(0, 0), (1, 10)]
    assert taken(plan(instants=lambda: iter([5]))) == [(0, 5)]


def test_what_is_due_is_counted_whether_it_is_taken_or_not() -> None:
    one = plan(instants=every_ten, end_ns=45)
    assert [one.due(now) for now in (0, 9, 10, 44, 45, 900)] == [1, 1, 2, 5, 5, 5]
    assert plan(instants=every_ten, most=3).due(900) == 3
    assert plan(instants=lambda: iter([0, 1])).due(900) == 2


@pytest.mark.asyncio
async def test_a_turn_waits_for_the_end_of_the_one_before_and_thinks() -> None:
    turns = Turns()
    turns.begin(0)
    second = Request(number=3, parts=(Part("a", 1),), after=0, think_ns=7)
    waiting = asyncio.ensure_future(turns.ready_ns(second))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.end(0, 100)
    assert await waiting == 107
    assert await turns.ready_ns(Request(number=4, parts=(Part("a", 1),))) == 0


@pytest.mark.asyncio
async def test_an_end_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchserver.scenarios.load.plan._REMEMBERED", 1)
    turns = Turns()
    for number in range(2):
        turns.begin(number)
        turns.end(number, 100 + number)
    late = Request(number=9, parts=(Part("a", 1),), after=0, think_ns=7)
    assert await turns.ready_ns(late) == 7
