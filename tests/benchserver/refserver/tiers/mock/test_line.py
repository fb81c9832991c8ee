"""The timing of one direction, by numbers; and against a simulation that knows all in advance."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from benchserver.clock import NS_PER_MS, NS_PER_S
from benchserver.refserver.tiers.mock.line import MAX_CREDIT_NS, Line, Rank, Transfer

BYTE_NS = 1000
"""A line of a million bytes a second: a microsecond each."""


def line() -> Line:
    return Line(NS_PER_S // BYTE_NS)


def test_a_transfer_takes_its_bytes_over_the_throughput() -> None:
    assert Line(2 << 30).submit(Rank.GET, 2 << 30, 7).finish_ns == 7 + NS_PER_S
    assert Line(3).submit(Rank.GET, 1, 0).finish_ns == 333_333_334
    assert line().submit(Rank.GET, 5, 100).finish_ns == 100 + 5 * BYTE_NS


def test_the_limit_is_the_lines_and_not_each_transfers() -> None:
    shared = line()
    transfers = [shared.submit(Rank.GET, 10, 0) for _ in range(8)]
    ends = [shared.finish_ns(transfer, 0) for transfer in transfers]
    assert ends == [(number + 1) * 10 * BYTE_NS for number in range(8)]
    assert shared.depth(0) == 8
    assert shared.depth(35 * BYTE_NS) == 5
    assert shared.depth(80 * BYTE_NS) == 0


def test_prefetches_go_before_gets_but_interrupt_none() -> None:
    shared = line()
    first = shared.submit(Rank.GET, 10, 0)
    second = shared.submit(Rank.GET, 10, 0)
    assert shared.finish_ns(second, 0) == 20 * BYTE_NS
    prefetches = [shared.submit(Rank.PREFETCH, 10, 5 * BYTE_NS) for _ in range(2)]
    put = shared.submit(Rank.PUT, 1, 5 * BYTE_NS)
    now_ns = 6 * BYTE_NS
    order = [first, *prefetches, second, put]
    ends = [shared.finish_ns(transfer, now_ns) for transfer in order]
    assert ends == [end * BYTE_NS for end in (10, 20, 30, 40, 41)]
    # Late for the second: its turn has come.
    assert shared.finish_ns(second, 30 * BYTE_NS) == 40 * BYTE_NS
    late = shared.submit(Rank.PREFETCH, 10, 31 * BYTE_NS)
    assert shared.finish_ns(second, 31 * BYTE_NS) == 40 * BYTE_NS
    assert shared.finish_ns(late, 31 * BYTE_NS) == 50 * BYTE_NS


def test_who_waits_can_be_taken_back() -> None:
    shared = line()
    running, waiting, last = (shared.submit(Rank.GET, 10, 0) for _ in range(3))
    shared.withdraw(running)
    shared.withdraw(waiting)
    assert shared.depth(0) == 2
    assert shared.finish_ns(last, 0) == 20 * BYTE_NS
    assert shared.finish_ns(last, 10 * BYTE_NS) == 20 * BYTE_NS
    assert last.finish_ns == 20 * BYTE_NS


def test_an_idle_line_has_no_memory() -> None:
    shared = line()
    shared.submit(Rank.GET, 10, 0)
    assert shared.submit(Rank.GET, 10, NS_PER_S).finish_ns == NS_PER_S + 10 * BYTE_NS


def test_a_caller_that_wakes_late_loses_no_throughput() -> None:
    """One client, one transfer after the other, each time 70 % of a transfer late."""
    shared, now_ns = line(), 0
    for _ in range(1000):
        transfer = shared.submit(Rank.GET, 10, now_ns)
        now_ns = max(now_ns, transfer.finish_ns) + 7 * BYTE_NS
        shared.woke_late(now_ns - transfer.finish_ns)
    assert now_ns == (1000 * 10 + 7) * BYTE_NS


def test_credit_is_bounded_used_once_and_never_doubles_the_line() -> None:
    shared = line()
    first = shared.submit(Rank.GET, 1, 0)
    shared.woke_late(10 * MAX_CREDIT_NS)
    now_ns = NS_PER_S
    second = shared.submit(Rank.GET, 1, now_ns)
    assert second.finish_ns == now_ns - MAX_CREDIT_NS + BYTE_NS
    third = shared.submit(Rank.GET, 1, now_ns + 1)
    assert third.finish_ns == now_ns + 1 + BYTE_NS
    shared.woke_late(NS_PER_MS)
    fourth = shared.submit(Rank.GET, 1, third.finish_ns + 1)
    assert fourth.finish_ns == third.finish_ns + BYTE_NS
    assert first.finish_ns == BYTE_NS


@dataclass(frozen=True, slots=True)
class Arrival:
    at_ns: int
    rank: Rank
    nbytes: int


def simulate(arrivals: list[Arrival]) -> list[int]:
    """Return when each transfer ends: a loop over the moments at which the line is free."""
    ends = [0] * len(arrivals)
    left = set(range(len(arrivals)))
    free_ns = 0
    while left:
        start_ns = max(free_ns, min(arrivals[i].at_ns for i in left))
        # Who comes at the very moment is too late for a choice, and goes if there is none.
        ready = [i for i in left if arrivals[i].at_ns < start_ns] or [min(left)]
        chosen = min(ready, key=lambda i: (arrivals[i].rank, i))
        left.remove(chosen)
        free_ns = ends[chosen] = start_ns + arrivals[chosen].nbytes * BYTE_NS
    return ends


steps = st.tuples(
    st.integers(0, 30 * BYTE_NS), st.sampled_from(Rank), st.integers(1, 20), st.booleans()
)


@given(st.lists(steps, max_size=30))
@example([(0, Rank.GET, 1, False), (0, Rank.GET, 1, False), (BYTE_NS, Rank.PREFETCH, 1, False)])
def test_the_line_does_what_a_simulation_says(drawn: list[tuple[int, Rank, int, bool]]) -> None:
    """Whoever asks in between, and however rarely."""
    shared, now_ns = line(), 0
    arrivals: list[Arrival] = []
    transfers: list[Transfer] = []
    for gap_ns, rank, nbytes, ask in drawn:
        now_ns += gap_ns
        transfers.append(shared.submit(rank, nbytes, now_ns))
        arrivals.append(Arrival(now_ns, rank, nbytes))
        if ask:
            shared.finish_ns(transfers[0], now_ns)
    end_ns = now_ns + NS_PER_S
    ends = [shared.finish_ns(transfer, end_ns) for transfer in transfers]
    assert ends == simulate(arrivals)
    assert shared.depth(end_ns) == 0
