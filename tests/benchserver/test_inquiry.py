"""SIGUSR1 at each moment: it is answered, and ends nothing."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchserver import inquiry


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Put the handler of before back."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def ask() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_who_answers(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    at_exit: list[Callable[[], Any]] = []
    monkeypatch.setattr(atexit, "register", lambda call, *args: at_exit.append(lambda: call(*args)))
    inquiry.install()
    told: list[str] = []
    ask()
    with inquiry.answering(lambda: told.append("first")):
        ask()
        with inquiry.answering(lambda: told.append("second")):
            ask()
        ask()
    line = "bench-server: no run is under way, so there is nothing to tell\n"
    assert capfd.readouterr() == ("", line)
    ask()
    assert capfd.readouterr() == ("", line)
    assert told == ["first", "second", "first"]
    # In the last moments nobody answers, and nobody dies of it.
    for call in at_exit:
        call()
    ask()
    assert capfd.readouterr() == ("", "")
