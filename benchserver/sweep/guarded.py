"""Commands under a guard: started, watched and stopped from here; gone when this process is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchserver.errors import FatalError, one_line, os_reason
from benchserver.sweep import guard

_KEEP_S = 1.0
"""What the guard gets beyond the time that its command is given."""

_ORPHANED_S = 3.0
"""What a command is given when this process was killed."""

_TAIL_BYTES = 4000
_TAIL_LINES = 3
_LINE_CHARS = 300


class Guarded:
    """A command that runs."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.returncode

    async def wait(self, within_s: float) -> int | None:
        """Return its exit code; None if it still runs after so long."""
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self._process.wait(), within_s)
        return self.exit_code

    async def stop(self, within_s: float) -> None:
        """Tell it to end, and kill it if it has not after so long."""
        assert self._process.stdin is not None
        if self.exit_code is None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{within_s}\n".encode())
                await self._process.stdin.drain()
            await self.wait(within_s + _KEEP_S)
        self._process.stdin.close()
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def last_words(self) -> str:
        """Return the last lines of its log, in one line."""
        content = b""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            content = file.read()
        lines = content.decode("utf-8", "replace").splitlines()
        said = [one_line(line, _LINE_CHARS) for line in lines if line.strip()][-_TAIL_LINES:]
        return " / ".join(said) or "nothing"


@asynccontextmanager
async def started(
    words: Sequence[str], log: Path, environment: Mapping[str, str]
) -> AsyncIterator[Guarded]:
    """Run a command, what it says going to a log; killed at the end, if nobody has stopped it."""
    try:
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guard.__file__, str(_ORPHANED_S), *words),
                stdin=PIPE,
                stdout=said.fileno(),
                stderr=said.fileno(),
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        raise FatalError(f"cannot start {one_line(words[0], 80)}: {os_reason(error)}") from error
    guarded = Guarded(process, log)
    try:
        yield guarded
    finally:
        await guarded.stop(0.0)
