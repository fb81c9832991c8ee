"""`bench-server selftest`: options to cases, the runs, the table, the exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import click

from benchserver.clock import NS_PER_S, RealClock
from benchserver.config import check_output_path
from benchserver.errors import EXIT_FAILED, EXIT_OK, UsageError, one_line
from benchserver.selftest.case import CONTROL, Case
from benchserver.selftest.cases import CASES


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the runs of these faults, all if there are none; UsageError for an unknown one."""
    known = dict.fromkeys(case.fault for case in CASES)
    for name in names:
        if name not in known:
            raise UsageError(
                f"--only {one_line(ascii(name), 60)}: no such fault; known: {', '.join(known)} "
                f"({CONTROL} is the server without a fault)"
            )
    return [case for case in CASES if not names or case.fault in names]


def run_selftest(options: Mapping[str, Any]) -> int:
    """Run, print the table, and return the exit code."""
    from benchserver.selftest.table import document, list_line, make_table, summary

    cases = chosen(options["only"])
    if options["list_only"]:
        for case in cases:
            click.echo(list_line(case))
        return EXIT_OK
    mode = options["mode"]
    if mode == "gpu":
        from benchserver.kv.cuda import require_device

        require_device()
    path = options["json_path"]
    if path is not None:
        check_output_path("--json", path)
    clock = RealClock()
    started_ns = clock.now_ns()
    table = make_table(len(cases))
    try:
        rows = asyncio.run(_run(cases, options["jobs"], mode, clock, table))
    except asyncio.CancelledError:
        table.close()
        click.echo("SELFTEST: interrupted, nothing is proven (exit 1)")
        return EXIT_FAILED
    table.close()
    wall_s = (clock.now_ns() - started_ns) / NS_PER_S
    click.echo(summary(rows, wall_s))
    if path is not None:
        from benchserver.report.files import write_report

        write_report(path, json.dumps(document(rows, wall_s, mode), indent=2).encode() + b"\n")
    return EXIT_FAILED if any(row.wrong for row in rows) else EXIT_OK


async def _run(cases: Sequence[Case], jobs: int, mode: str, clock: RealClock, table: Any) -> Any:
    """Run the cases; SIGINT, SIGTERM or SIGHUP ends all children and raises CancelledError."""
    from benchserver.selftest.runs import GPU, HOST, run_cases

    setup = GPU if mode == "gpu" else HOST
    work = asyncio.ensure_future(
        run_cases(cases, jobs=jobs, clock=clock, on_row=table.row, setup=setup)
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What nohup ignores stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, work.cancel)
    return await work
