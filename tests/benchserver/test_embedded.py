"""The embedded server as a child: what it may print, and that it ends with us."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchserver import embedded, ending
from benchserver.embedded import embedded_l1_bytes, embedded_server
from benchserver.ending import Ending
from benchserver.errors import BEFORE, FatalError
from shapespec import parse_shape_spec

pytestmark = pytest.mark.usefixtures("leak_free")

SPEC = parse_shape_spec("(2,8,2,1,4):float16:1")
PORTS = 'print(\'{"rpc_port": 7, "http_port": 8}\', flush=True)'
UNTIL_STDIN_ENDS = "import sys; sys.stdin.read()"
FOR_EVER = "import time; time.sleep(60)"
LONG_S = 20.0
"""Far more than is promised, on a busy machine too, and far less than for ever."""

Children = list["subprocess.Popen[bytes]"]
Play = Callable[[str], Children]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Let children run a program of ours in the place of `serve`."""
    start = subprocess.Popen

    def use(program: str) -> Children:
        children: Children = []

        def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            assert command[:4] == [sys.executable, "-m", "benchserver", "serve"]
            children.append(start([sys.executable, "-c", program], **options))
            return children[-1]

        monkeypatch.setattr(subprocess, "Popen", popen)
        return children

    return use


def test_lines_that_are_not_ours_are_skipped(play: Play) -> None:
    children = play(f'print("welcome"); print("[1]\\n7\\n"); {PORTS}; {UNTIL_STDIN_ENDS}')
    with embedded_server(SPEC, 1, 4) as server:
        assert (server.rpc_url, server.http_url) == ("tcp://127.0.0.1:7", "http://127.0.0.1:8")
        assert children[0].poll() is None
    assert children[0].returncode == 0


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("", "it said nothing"),
        ('print("wel\\ncome")', "it said wel come"),
        ('print("{\\"rpc_port\\": null}")', "it said {"),
        ('while True: print("x" * 999)', "it said xxx"),
    ],
)
def test_a_child_that_never_says_where_it_is(play: Play, program: str, text: str) -> None:
    children = play(program)
    with (
        pytest.raises(FatalError, match=f"the embedded server did not start: {text}") as raised,
        embedded_server(SPEC, 1, 4),
    ):
        raise AssertionError("started")
    assert len(str(raised.value)) < 200
    assert children[0].returncode is not None


def test_a_child_that_is_not_ready_in_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_READY_WITHIN_S", 0.2)
    monkeypatch.setattr(embedded, "_STOP_WITHIN_S", 0.2)
    children = play(f'print("half", end="", flush=True); {FOR_EVER}')
    with pytest.raises(FatalError, match=r"not ready within 0\.2 s"), embedded_server(SPEC, 1, 4):
        raise AssertionError("started")
    assert children[0].returncode == -9


def test_a_signal_while_it_starts_ends_it_at_once(play: Play) -> None:
    children, asked = play(FOR_EVER), Ending()
    started = time.monotonic()
    threading.Timer(0.3, asked.on_signal).start()
    with pytest.raises(FatalError, match=BEFORE), embedded_server(SPEC, 1, 4, ending=asked):
        raise AssertionError("started")
    assert time.monotonic() - started < LONG_S
    assert children[0].returncode == -9


def test_a_signal_shortens_the_wait_for_its_end(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_WITHIN_S", 0.3)
    children, asked = play(f"{PORTS}; {FOR_EVER}"), Ending()
    with embedded_server(SPEC, 1, 4, gpu=True, ending=asked):
        started = time.monotonic()
        threading.Timer(0.2, asked.on_signal).start()
    assert 0.2 < time.monotonic() - started < LONG_S
    assert children[0].returncode == -9


def test_a_second_signal_kills_it(play: Play) -> None:
    codes: list[int] = []
    clock_s = [100.0]
    children = play(f"{PORTS}; {UNTIL_STDIN_ENDS}")
    asked = Ending(leave=codes.append, now_s=lambda: clock_s[0])
    with embedded_server(SPEC, 1, 4, ending=asked):
        asked.on_signal()
        asked.on_signal()
        assert codes == []  # within half a second they are one
        clock_s[0] += 1
        asked.on_signal()
        assert codes == [1]
        assert children[0].wait(LONG_S) == -9


def test_its_l1_has_room_for_all_that_is_under_way_and_more() -> None:
    spec = parse_shape_spec("(2,1024,16,8,128):float16:32")
    sequence = 2 * 32 * 8 * 128 * 2 * 512
    assert embedded_l1_bytes(spec, 1, 512) == 4 * sequence
    assert embedded_l1_bytes(spec, 2, 512, 8) == 18 * 2 * sequence
    assert embedded_l1_bytes(spec, 1, 1) == 64 << 20
