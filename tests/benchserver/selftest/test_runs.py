"""Runs that read from L2, with real servers: L1 is empty by then, and the folder is the run's."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchserver.clock import RealClock
from benchserver.embedded import EmbeddedServer
from benchserver.selftest import runs
from benchserver.selftest.case import FOLDER, Case
from benchserver.selftest.cases.every import CASES
from benchserver.selftest.judge import Ended, Row
from benchserver.selftest.runs import GPU, HOST, Setup, run_cases

WARM = ("--expect-warm", "--end", "1")
SLOW = "mock://1/?write_throughput=0.000001"
"""About a kilobyte a second: nothing is ever through."""


HERE = EmbeddedServer(rpc_url="tcp://127.0.0.1:1", http_url="http://127.0.0.1:2")


async def row_of(case: Case, setup: Setup = HOST) -> Row:
    """Make one run and judge it."""
    [row] = await run_cases([case], jobs=1, clock=RealClock(), on_row=lambda _: None, setup=setup)
    return row


async def reread(*serve: str, setup: Setup = HOST) -> Row:
    """Run twice with L1 emptied in between, without a fault."""
    case = Case(switch="", before=("--end", "1"), from_l2=True, serve=serve, options=WARM)
    return await row_of(case, setup)


@pytest.mark.asyncio
async def test_without_l2_nothing_is_left() -> None:
    row = await reread()
    assert row.wrong.startswith("exit 1, expected 0, cold_lookup, ")


@pytest.mark.asyncio
async def test_a_run_has_a_folder_of_its_own() -> None:
    for _ in range(2):
        assert (await reread("--l2", f"fs://{FOLDER}/tier")).wrong == ""


@pytest.mark.asyncio
async def test_l1_is_not_emptied_before_l2_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_WRITTEN_WITHIN_S", 0.3)
    # Such a server does not end by itself.
    row = await reread("--l2", SLOW, setup=replace(HOST, stop_s=0.3))
    assert row.wrong == "the tiers were still writing after 0.3 s"


async def words_of_a_run(monkeypatch: pytest.MonkeyPatch, setup: Setup) -> list[list[str]]:
    """Return the command lines of the server and the bench of one case."""
    lines: list[list[str]] = []

    async def start(command: Sequence[str], *, stdin: int, stderr: int) -> Process:
        lines.append(list(command[3:]))
        # A server that says where it is, then a bench that says nothing.
        program = 'print(\'{"rpc_port": 1, "http_port": 2}\', flush=True); input()'
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program if "serve" in command else ""),
            stdin=stdin,
            stdout=PIPE,
            stderr=stderr,
        )

    monkeypatch.setattr(runs, "_start", start)
    row = await row_of(Case(switch=""), setup)
    assert "without a report" in row.wrong
    return lines


@pytest.mark.asyncio
async def test_gpu_runs_have_a_gpu_server_and_a_gpu_bench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, bench = await words_of_a_run(monkeypatch, GPU)
    assert (server[0], "--gpu" in server) == ("serve", True)
    assert bench[:2] == ["--mode", "gpu"]
    server, bench = await words_of_a_run(monkeypatch, HOST)
    assert "--gpu" not in server
    assert bench[:2] == ["--mode", "cpu"]


@pytest.mark.asyncio
async def test_a_run_has_the_deadline_of_its_setup() -> None:
    setup = replace(HOST, run_s=0.01)
    row = await row_of(Case(switch=""), setup)
    assert row.wrong == "the run did not end within 0.01 s"


@pytest.mark.asyncio
async def test_a_cancellation_is_not_lost_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    first = asyncio.Event()

    async def swallowing(number: int, *_: object) -> Ended:
        begun.append(number)
        first.set()
        with contextlib.suppress(asyncio.CancelledError):  # as `wait_for` may, before Python 3.12
            await asyncio.Event().wait()
        return Ended(trouble="cancelled")

    monkeypatch.setattr(runs, "_run_case", swallowing)
    work = asyncio.ensure_future(
        runs.run_cases(CASES[:3], jobs=1, clock=RealClock(), on_row=lambda _: None)
    )
    await first.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(work, 10)
    assert begun == [0]


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ('{"rpc_port": 1, "http_port": 2}\n', HERE),
        ('welcome\n[]\n7\n\n{"rpc_port": 1, "http_port": 2}\nmore\n', HERE),
        ("", None),
        ("welcome\n", None),
        ("welcome\n" * 5000, None),
        ("welcome" * 50_000, None),
    ],
)
@pytest.mark.asyncio
async def test_what_else_a_server_prints_is_skipped(said: str, at: EmbeddedServer | None) -> None:
    stdout = asyncio.StreamReader()
    stdout.feed_data(said.encode())
    stdout.feed_eof()
    assert await runs._where(stdout) == at
