"""Who gets which of torch's streams."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.refserver.gpu.stream import TORCH_STREAMS, Streams
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
