"""Who gets which of torch's streams."""

from __future__ import annotations

import itertools
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.clock import NS_PER_S
from benchserver.refserver.gpu.stream import TORCH_STREAMS, Streams, check_event_handle, wait_until
from benchserver.refserver.refusal import RefusalError

DEVICE = SimpleNamespace(index=0)


class Pool:
    """Gives streams out in turns, as torch does."""

    def __init__(self) -> None:
        self.busy: set[int] = set()
        self._next = itertools.cycle(range(1, TORCH_STREAMS + 1))

    def stream(self, device: Any) -> Any:
        number = next(self._next)
        return SimpleNamespace(
            device=device, cuda_stream=number, query=lambda: number not in self.busy
        )


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    found = Pool()
    torch = SimpleNamespace(cuda=SimpleNamespace(Stream=found.stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


@pytest.mark.usefixtures("pool")
def test_clients_have_streams_of_their_own_as_long_as_there_are_some() -> None:
    streams = Streams()
    taken = [streams.take(DEVICE) for _ in range(TORCH_STREAMS)]
    assert len({stream.cuda_stream for stream in taken}) == TORCH_STREAMS
    shared = streams.take(DEVICE)
    streams.give(taken[4])
    if shared.cuda_stream == taken[4].cuda_stream:
        streams.give(shared)
    assert streams.take(DEVICE).cuda_stream == taken[4].cuda_stream


def test_nobody_gets_a_stream_that_is_stuck(pool: Pool) -> None:
    streams = Streams()
    first = streams.take(DEVICE)
    pool.busy = {first.cuda_stream}
    for _ in range(2 * TORCH_STREAMS):
        assert streams.idle(DEVICE).cuda_stream != first.cuda_stream
    others = {streams.take(DEVICE).cuda_stream for _ in range(2 * TORCH_STREAMS)}
    assert len(others) == TORCH_STREAMS - 1
    assert first.cuda_stream not in others
    pool.busy = set(range(1, TORCH_STREAMS + 1))
    with pytest.raises(RefusalError, match=r"^all 32 streams of the GPU are busy$"):
        streams.take(DEVICE)
    with pytest.raises(RefusalError, match=r"^all 32 streams of the GPU are busy$"):
        streams.idle(DEVICE)


@pytest.mark.parametrize("length", [0, 15, 63, 65, 81])
def test_an_event_handle_has_64_bytes(length: int) -> None:
    check_event_handle(bytes(64))
    with pytest.raises(RefusalError, match=f"^an event handle of {length} bytes, expected 64"):
        check_event_handle(bytes(length))


class Time:
    """Passes only in sleep."""

    def __init__(self, ends_at_ns: int = -1) -> None:
        self.now = 0
        self.ends_at_ns = ends_at_ns
        self.stopping = threading.Event()
        self.stops_at_ns = -1

    def now_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += NS_PER_S // 4
        if 0 <= self.stops_at_ns <= self.now:
            self.stopping.set()

    def done(self) -> bool:
        return 0 <= self.ends_at_ns <= self.now

    def wait(self, within_ns: int) -> bool:
        return wait_until(
            self.done,
            stopping=self.stopping,
            within_ns=within_ns,
            now_ns=self.now_ns,
            sleep=self.sleep,
        )


def test_a_wait_for_the_device_has_a_deadline() -> None:
    assert Time(ends_at_ns=0).wait(0)
    time = Time(ends_at_ns=3 * NS_PER_S)
    assert time.wait(5 * NS_PER_S)
    assert time.now == 3 * NS_PER_S
    late = Time()
    assert not late.wait(5 * NS_PER_S)
    assert late.now == 5 * NS_PER_S


def test_a_server_that_stops_waits_a_second_longer_at_most() -> None:
    time = Time()
    time.stops_at_ns = 2 * NS_PER_S
    assert not time.wait(100 * NS_PER_S)
    assert time.now == 3 * NS_PER_S
    ended = Time(ends_at_ns=NS_PER_S // 2)
    ended.stopping.set()
    assert ended.wait(100 * NS_PER_S)
