"""Makes the runs: a server and a bench as processes, each with a deadline, a few at a time.

Nothing that was started outlives `run_cases`: not after an error, not after Ctrl-C.  A server ends
with its standard input, so it goes with us even after SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
import urllib.parse
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchserver.clock import NS_PER_S, Clock
from benchserver.embedded import EmbeddedServer, own_environment, serve_command, server_in
from benchserver.errors import FatalError, one_line
from benchserver.outlet import SecondsLeft, all_of_them
from benchserver.refserver.config import POOL_PREFIX
from benchserver.selftest.case import FOLDER, HANDLE, SHM, Case
from benchserver.selftest.judge import NOT_ASKED, Ended, Row, judge
from protocol.httpapi import CLEAR_PATH, STATUS_PATH

SPEC = "(2,112,16,2,8):float16:3"
SEED = 20250817
L1_GB = "0.03125"
_ASK_WITHIN_S = 5.0
_WRITTEN_WITHIN_S = 5.0
_POLL_S = 0.05
_KEEP_AFTER_BENCH_S = 1.2
_KEEP_AFTER_SERVER_S = 0.5
"""Of the three seconds after a signal: a bench is told to end first, then its server."""

_MAX_OUTPUT_BYTES = 1 << 20
_TAIL_CHARS = 600
_MAX_LINES_BEFORE = 1000
_SHM_DIR = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Where the KV pools lie, and the deadlines that go with it, in seconds.

    ready_s: until a server is.  run_s: a whole run.  stop_s: until a process that was told to stop
    is killed, and `seconds_left` says how much of that a signal has left.
    """

    mode: str
    ready_s: float
    run_s: float
    stop_s: float
    seconds_left: SecondsLeft = all_of_them

    def stop_within(self, keep_s: float) -> float:
        """Return how long a process may take to stop; once it is urgent, keep time for others."""
        left_s = self.seconds_left(self.stop_s)
        return left_s if left_s == self.stop_s else max(0.0, left_s - keep_s)


HOST = Setup(mode="cpu", ready_s=20.0, run_s=40.0, stop_s=4.0)
"""A run takes two seconds; the faults of silence take five."""

GPU = Setup(mode="gpu", ready_s=120.0, run_s=240.0, stop_s=20.0)
"""Server and bench load torch first: seconds each, and longer the more runs there are at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    at: EmbeddedServer
    process: Process


async def run_cases(
    cases: Sequence[Case],
    *,
    jobs: int,
    clock: Clock,
    on_row: Callable[[Row], None],
    setup: Setup = HOST,
) -> list[Row]:
    """Run all cases, `jobs` at a time; `on_row` hears of each in their order."""
    gate = asyncio.Semaphore(jobs)

    async def run_one(number: int, case: Case) -> Row:
        async with gate:
            return judge(case, await _run_case(number, case, clock, setup))

    tasks = [asyncio.ensure_future(run_one(n, case)) for n, case in enumerate(cases)]
    rows: list[Row] = []
    try:
        for task in tasks:
            # Not the task itself: a cancellation would go to it alone, and `wait_for` can lose
            # one (before Python 3.12).
            await asyncio.wait((task,))
            rows.append(task.result())
            on_row(rows[-1])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return rows


async def _run_case(number: int, case: Case, clock: Clock, setup: Setup) -> Ended:
    started_ns = clock.now_ns()
    try:
        ended = await asyncio.wait_for(_run_both(number, case, setup), setup.run_s)
    except (asyncio.TimeoutError, TimeoutError):
        ended = Ended(trouble=f"the run did not end within {setup.run_s:g} s")
    except FatalError as error:
        ended = Ended(trouble=one_line(error))
    return replace(ended, wall_s=(clock.now_ns() - started_ns) / NS_PER_S)


async def _run_both(number: int, case: Case, setup: Setup) -> Ended:
    with tempfile.TemporaryDirectory(prefix="bench-server-selftest-") as folder:
        async with _serving(number, case, Path(folder), setup) as server:
            if case.before is not None:
                report = Path(folder, "before.json")
                first = await _bench(server, case, case.before, report, setup)
                if first.exit_code != 0:
                    return Ended(trouble=f"the run before ended with exit {first.exit_code}")
            if case.from_l2:
                await _empty_l1(server)
            report = Path(folder, "report.json")
            ended = await _bench(server, case, case.options, report, setup)
            return replace(ended, fired=await _fired(server))


@asynccontextmanager
async def _serving(number: int, case: Case, folder: Path, setup: Setup) -> AsyncIterator[_Server]:
    # No other self-test has it, in a container with a pid like ours either: it is removed below.
    pool = f"selftest-{secrets.token_hex(8)}-{number}" if case.transport == SHM else ""
    options = ["--l1-size-gb", L1_GB, "--shm-name", pool]
    options += ["--gpu"] if setup.mode == "gpu" else []
    options += [word.replace(FOLDER, urllib.parse.quote(str(folder))) for word in case.serve]
    options += ["--fault", case.switch] if case.switch else []
    log = folder / "server.log"
    with log.open("wb") as errors:
        process = await _start(serve_command(*options), stdin=PIPE, stderr=errors.fileno())
    try:
        yield await _ready(process, log, setup.ready_s)
    finally:
        await _end_server(process, setup.stop_within(_KEEP_AFTER_SERVER_S))
        if pool:  # a server that was killed, or killed itself, leaves it behind
            with contextlib.suppress(FileNotFoundError):
                (_SHM_DIR / (POOL_PREFIX + pool)).unlink()


async def _start(command: Sequence[str], *, stdin: int, stderr: int) -> Process:
    """Start a command of ours; in a session of its own, so that Ctrl-C reaches us alone."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=PIPE,
        stderr=stderr,
        env=own_environment(),
        start_new_session=True,
        limit=_MAX_OUTPUT_BYTES,
    )


async def _ready(process: Process, log: Path, within_s: float) -> _Server:
    assert process.stdout is not None
    try:
        at = await asyncio.wait_for(_where(process.stdout), within_s)
    except (asyncio.TimeoutError, TimeoutError):
        at = None
    if at is None:
        raise FatalError(
            f"the embedded server did not start; it said: {one_line(_tail(log)) or 'nothing'}"
        )
    return _Server(at=at, process=process)


async def _where(stdout: asyncio.StreamReader) -> EmbeddedServer | None:
    """Read lines until one says where a server listens; None if none does, or a line is too long.

    torch, or what it loads, prints lines of its own at times.
    """
    for _ in range(_MAX_LINES_BEFORE):
        try:
            line = await stdout.readline()
        except ValueError:
            return None
        if at := server_in(line):
            return at
        if not line:
            break
    return None


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_TAIL_CHARS:]


async def _end_server(process: Process, within_s: float) -> None:
    assert process.stdin is not None
    process.stdin.close()
    await _reap(process, within_s)


async def _reap(process: Process, within_s: float) -> None:
    """Wait for a process that should end by itself, and kill it if it does not."""
    try:
        await asyncio.wait_for(process.wait(), within_s)
    except (asyncio.TimeoutError, TimeoutError):
        pass
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _bench(
    server: _Server, case: Case, options: Sequence[str], report: Path, setup: Setup
) -> Ended:
    mode = "lmcache_driven" if case.transport == HANDLE else "engine_driven"
    words = [sys.executable, "-m", "benchserver", "--mode", setup.mode]
    words += ["--rpc-url", server.at.rpc_url, "--url", server.at.http_url]
    words += ["--kvcache-shape-spec", SPEC, "--seed", str(SEED), "--json", str(report)]
    words += ["--end", "2", "--interval", "0", "--transfer-mode", mode]
    # The default of one mode, and not of the other; the embedded server has no trouble with it.
    words += ["--require-transport", case.transport, "--partial-skip", "blocks", *options]
    log = report.with_suffix(".log")
    with log.open("wb") as errors:
        process = await _start(words, stdin=DEVNULL, stderr=errors.fileno())
    assert process.stdout is not None
    try:
        stdout = await process.stdout.read()
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await _reap(process, setup.stop_within(_KEEP_AFTER_BENCH_S))
    return Ended(
        exit_code=code,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=_tail(log),
        report=_read_report(report),
    )


def _read_report(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return document


async def _empty_l1(server: _Server) -> None:
    """Wait until the tiers have what they were given, and clear L1; raises FatalError."""
    try:
        await asyncio.wait_for(_written(server), _WRITTEN_WITHIN_S)
        await _ask(server, CLEAR_PATH, {"force": True})
    except (asyncio.TimeoutError, TimeoutError) as error:
        raise FatalError(f"the tiers were still writing after {_WRITTEN_WITHIN_S:g} s") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FatalError(f"L1 was not emptied: {error!r}") from error


async def _written(server: _Server) -> None:
    """Return when no tier has a write under way."""
    while True:
        manager = (await _ask(server, STATUS_PATH))["storage_manager"]
        if not any(tier["queued"] for tier in manager["l2_adapters"]):
            return
        await asyncio.sleep(_POLL_S)


async def _fired(server: _Server) -> int:
    """Ask the server how often its fault fired; NOT_ASKED if it does not live any more."""
    if server.process.returncode is not None:
        return NOT_ASKED
    try:
        faults = (await _ask(server, "/faults"))["faults"]
        return sum(int(fault["fired"]) for fault in faults)
    except (OSError, ValueError, TypeError, KeyError):
        return NOT_ASKED


async def _ask(server: _Server, path: str, body: Any = None) -> Any:
    """GET a document, or POST a body; raises OSError or ValueError."""
    url = server.at.http_url + path
    return await asyncio.get_running_loop().run_in_executor(None, _ask_now, url, body)


def _ask_now(url: str, body: Any) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with opener.open(request, timeout=_ASK_WITHIN_S) as answer:
        return json.load(answer)
