"""Commands that the sweep runs: waited for, stopped, gone when the block ends or the sweep does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchserver.sweep.guarded import started
from tests.benchserver.sweep.processes import PYTHON, WITHIN_S, all_gone, sleeper, written_pids

ENVIRONMENT = dict(os.environ)


@pytest.mark.asyncio
async def test_to_its_end(tmp_path: Path) -> None:
    text = "import os\nfor n in range(9): print('line', n, os.environ['WHAT'])\nraise SystemExit(3)"
    log = tmp_path / "log"
    async with started((*PYTHON, text), log, {**ENVIRONMENT, "WHAT": "x"}) as command:
        assert await command.wait(WITHIN_S) == 3
        assert command.exit_code == 3
        assert command.last_words() == " / ".join(f"line {n} x" for n in range(6, 9))
        await command.stop(1.0)


@pytest.mark.asyncio
async def test_it_may_say_nothing(tmp_path: Path) -> None:
    async with started((*PYTHON, "pass"), tmp_path / "log", ENVIRONMENT) as command:
        assert await command.wait(WITHIN_S) == 0
        assert command.last_words() == "nothing"


@pytest.mark.asyncio
async def test_a_long_line_leaves_room_for_others(tmp_path: Path) -> None:
    text = "print('x' * 2000); print('no memory')"
    async with started((*PYTHON, text), tmp_path / "log", ENVIRONMENT) as command:
        assert await command.wait(WITHIN_S) == 0
        said = command.last_words()
    assert said == f"{'x' * 297}... / no memory"


@pytest.mark.asyncio
async def test_it_is_told_and_given_time(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('told'), sys.exit(5)))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\ntime.sleep(600)"
    )
    async with started((*PYTHON, text), tmp_path / "log", ENVIRONMENT) as command:
        while not (tmp_path / "ready").exists():
            assert await command.wait(0.02) is None
        await command.stop(WITHIN_S)
        assert command.exit_code == 5
        assert command.last_words() == "told"


@pytest.mark.asyncio
async def test_the_end_of_the_block_is_its_end(tmp_path: Path) -> None:
    deaf = sleeper(tmp_path / "pids", deaf=True)
    async with started(deaf, tmp_path / "log", ENVIRONMENT) as command:
        pids = written_pids(tmp_path / "pids")
        assert await command.wait(0.01) is None
    assert command.exit_code is not None
    assert all_gone(pids)


_SWEEP = """
import asyncio, os, sys
from pathlib import Path
from benchserver.sweep.guarded import started

async def main():
    async with started(sys.argv[2:], Path(sys.argv[1]), dict(os.environ)) as command:
        await command.wait(600.0)

asyncio.run(main())
"""


def test_it_goes_with_us_even_when_we_are_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _SWEEP, str(tmp_path / "log"), *sleeper(tmp_path / "pids")]
    with subprocess.Popen(words) as sweep:
        pids = written_pids(tmp_path / "pids")
        sweep.send_signal(signal.SIGKILL)
    assert all_gone(pids)
