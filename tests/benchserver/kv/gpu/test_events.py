"""Events over a torch that is not there: what is recorded, and how long is waited."""

from __future__ import annotations

import threading

import pytest

from benchserver.errors import FatalError
from benchserver.kv.gpu import events as events_module
from benchserver.kv.gpu.events import CudaEvents
from benchserver.kv.pool import EventError
from tests.faketorch import FakeTorch, use_fake_torch

MS = 1_000_000
HANDLE = b"r" * 64


class Time:
    """Moves only when somebody sleeps: a millisecond a sleep."""

    def __init__(self) -> None:
        self.now = 5 * MS

    def now_ns(self) -> int:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += MS


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return use_fake_torch(monkeypatch)


def events_of(
    torch: FakeTorch, time: Time | None = None, cancel: threading.Event | None = None
) -> CudaEvents:
    time = time or Time()
    return CudaEvents("cuda:1", torch.stream(), cancel=cancel, now_ns=time.now_ns, sleep=time.sleep)


def test_an_event_is_recorded_on_the_stream_before_it_is_exported(torch: FakeTorch) -> None:
    events = events_of(torch)
    handle = events.record()
    assert (type(handle), len(handle)) == (bytes, 64)
    assert torch.log == [
        ("enter", "cuda:1"),
        ("event", {"enable_timing": False, "interprocess": True}),
        ("record", events.stream),
        "handle",
        ("leave", "cuda:1"),
    ]


def test_events_are_kept_until_far_newer_ones_come(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_KEPT_EVENTS", 3)
    events = events_of(torch)
    for _ in range(5):
        events.record()
    assert len(events._kept) == 3


def test_an_event_that_cannot_be_exported_ends_the_run(torch: FakeTorch) -> None:
    torch.errors["ipc_handle"] = RuntimeError("CUDA error: not supported\nand more")
    with pytest.raises(FatalError) as caught:
        events_of(torch).record()
    assert str(caught.value) == (
        "cuda:1: an event for the server cannot be exported (CUDA error: not supported)"
    )


def test_the_stream_waits_once_the_event_has_completed(torch: FakeTorch) -> None:
    time = Time()
    torch.polls = 4
    events_of(torch, time).wait(HANDLE, timeout_ns=10 * MS)
    assert time.now == 9 * MS
    assert torch.log[1] == ("open", "cuda:1", HANDLE)
    assert torch.log[2] == ("wait", torch.cuda.Event)


@pytest.mark.parametrize("handle", [b"", b"stub_ipc_handle", b"x" * 63, b"x" * 65])
def test_a_handle_of_another_length_is_none(torch: FakeTorch, handle: bytes) -> None:
    with pytest.raises(EventError, match=f"handle of {len(handle)} bytes, expected 64"):
        events_of(torch).wait(handle, timeout_ns=MS)
    assert torch.log == []


@pytest.mark.parametrize("call", ["from_ipc_handle", "query"])
def test_an_event_that_cannot_be_opened_or_asked(torch: FakeTorch, call: str) -> None:
    torch.errors[call] = RuntimeError("CUDA error: invalid resource handle\nand more")
    with pytest.raises(EventError) as caught:
        events_of(torch).wait(HANDLE, timeout_ns=MS)
    assert str(caught.value) == (
        "the server's event cannot be opened or queried (CUDA error: invalid resource handle)"
    )


def test_an_event_that_never_completes(torch: FakeTorch) -> None:
    time = Time()
    torch.polls = 10**9
    with pytest.raises(EventError, match=r"did not complete within 0\.25 s"):
        events_of(torch, time).wait(HANDLE, timeout_ns=250 * MS)
    assert time.now == 255 * MS
    # The stream must not wait for it: that would be for ever.
    assert not [entry for entry in torch.log if entry[0] == "wait"]


def test_a_run_that_was_told_to_stop_waits_a_second(torch: FakeTorch) -> None:
    time, cancel = Time(), threading.Event()
    cancel.set()
    torch.polls = 10**9
    with pytest.raises(EventError, match="did not complete within 1 s"):
        events_of(torch, time, cancel).wait(HANDLE, timeout_ns=60_000 * MS)
    torch.polls = 900
    events_of(torch, time, cancel).wait(HANDLE, timeout_ns=60_000 * MS)
    torch.polls = 10**9
    with pytest.raises(EventError, match=r"did not complete within 0\.002 s"):
        events_of(torch, time, cancel).wait(HANDLE, timeout_ns=2 * MS)
