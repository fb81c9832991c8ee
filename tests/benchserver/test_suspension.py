"""Ctrl-Z: what is undone before a process stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from benchserver.suspension import suspending


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Put the handler of before back."""
    before = signal.getsignal(signal.SIGTSTP)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def test_undone_first_then_stopped_and_ready_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    kill = os.kill

    def stop(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGTSTP)
        done.append(signal.getsignal(number))

    monkeypatch.setattr(os, "kill", stop)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    with suspending(lambda: done.append("undone")):
        for _ in range(2):
            kill(os.getpid(), signal.SIGTSTP)
    assert done == ["undone", signal.SIG_DFL] * 2
    assert signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    with suspending(lambda: None):
        os.kill(os.getpid(), signal.SIGTSTP)
        assert signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN
