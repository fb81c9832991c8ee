"""Runs bench-server as a user would, and judges how it ended."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchserver.embedded import own_environment
from tests.mitm.fault import Fault
from tests.mitm.forked import Forked, start
from tests.mitm.memory import SHM_DIR
from tests.mitm.running import Urls

SMALL_SPEC = "(2,96,16,2,8):float16:3"
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A bench that ended, or was killed (`timed_out`) because it did not."""

    pid: int
    exit_code: int
    stdout: str
    stderr: str
    report: dict[str, Any]
    wall_s: float
    timed_out: bool

    @property
    def bad_checks(self) -> set[str]:
        """Return the names of the checks that are not valid."""
        checks = self.report.get("checks", {})
        return {name for name, check in checks.items() if check["verdict"] != "valid"}

    def explain(self) -> str:
        """Return everything that it said, for a failed assertion."""
        return (
            f"exit {self.exit_code} after {self.wall_s:.1f} s, bad checks "
            f"{sorted(self.bad_checks)}\n{self.stdout}\n{self.stderr}"
        )


def start_bench(server: Urls, options: Sequence[str], report: Path) -> Forked:
    """Start a CPU run against the server."""
    urls = ("--rpc-url", server.rpc_url, "--url", server.http_url)
    return start(
        *("--mode", "cpu", *urls, "--json", str(report), *options),
        variables=own_environment(),
        stderr=subprocess.PIPE,
    )


def await_bench(
    process: Forked | subprocess.Popen[str], report: Path, within_s: float = WITHIN_S
) -> Ended:
    """Wait for a started bench; kill it if it takes too long."""
    started = time.monotonic()
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.kill()
        stdout, stderr = process.communicate()
    finally:
        if process.poll() is None:  # the test itself was stopped
            process.kill()
            process.wait()
    return Ended(
        pid=process.pid,
        exit_code=process.wait(),
        stdout=stdout,
        stderr=stderr,
        report=json.loads(report.read_bytes()) if report.exists() else {},
        wall_s=time.monotonic() - started,
        timed_out=timed_out,
    )


def run_bench(
    server: Urls, options: Sequence[str], report: Path, within_s: float = WITHIN_S
) -> Ended:
    """Run a bench to its end."""
    return await_bench(start_bench(server, options, report), report, within_s)


def options_for(fault: Fault) -> list[str]:
    """Return the options of a small run through a fault; the fault's own come last and win."""
    engine = fault.transport != "handle"
    mode = "engine_driven" if engine else "lmcache_driven"
    options = ["--kvcache-shape-spec", SMALL_SPEC, "--end", "2", "--interval", "0"]
    options += ["--transfer-mode", mode, "--require-transport", fault.transport]
    return [*options, *fault.options]


def assert_clean(ended: Ended) -> None:
    """Fail unless the bench ended by itself and left nothing on this machine."""
    assert not ended.timed_out, ended.explain()
    assert "Traceback" not in ended.stdout + ended.stderr, ended.explain()
    assert not list(SHM_DIR.glob(f"bench_server_{ended.pid}_*")), ended.explain()
    assert not processes_of_session(ended.pid), ended.explain()


def processes_of_session(session: int) -> list[int]:
    """Return the living processes of a session, by /proc."""
    found: list[int] = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            after_name = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(after_name[3]) == session and after_name[0] != "Z":
            found.append(int(path.name))
    return found


def assert_proven(ended: Ended, sequences: int) -> None:
    """Fail unless everything was proven."""
    assert_clean(ended)
    assert ended.exit_code == 0, ended.explain()
    assert ended.report["sequences"]["proven"] == sequences, ended.explain()
    assert not ended.bad_checks, ended.explain()
    assert "RESULT: PASS" in ended.stdout, ended.explain()


def assert_caught(ended: Ended, fault: Fault) -> None:
    """Fail unless the run failed, for the fault's reason, in the fault's words."""
    assert_clean(ended)
    if fault.harmless:
        assert ended.exit_code == 0, ended.explain()
        assert not ended.bad_checks, ended.explain()
        return
    assert ended.exit_code == 1, ended.explain()
    assert set(fault.checks) <= ended.bad_checks, ended.explain()
    missing = [words for words in fault.words if words not in ended.stdout]
    assert not missing, f"{missing} not said: {ended.explain()}"
    assert "RESULT: FAIL" in ended.stdout or "RESULT: UNPROVEN" in ended.stdout, ended.explain()
