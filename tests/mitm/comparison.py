"""Runs every fault before bench-server and before `lmcache bench server`, and tabulates both.

Each run goes through the proxy to a real LMCache server, whose cache is cleared before it; a
server on which a run left a registration is replaced.  Only measured results are printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance import status_of
from tests.mitm.bench import SMALL_SPEC, Ended, options_for, run_bench
from tests.mitm.fault import HANDLE, SHM, Fault
from tests.mitm.running import DELAY_S, Urls, running_proxy
from tests.mitm.servers import Server, real_server
from tests.room import clear

THEIR_DEADLINE_S = 10.0
"""`lmcache bench server` waits this long for an answer, and has no option for it (0.5.6)."""

THEIR_RUN_WITHIN_S = 100.0
_THEIR_TROUBLE = re.compile(r"\[WARNING\].*|\bSKIP\b.*|CHECKSUM MISMATCH|(?:STORE|RETRIEVE): \w+")
_THEIR_GOOD = {"STORE: stored", "RETRIEVE: retrieved"}
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault and what both benches made of it."""

    fault: Fault
    ours: str
    theirs: str

    def markdown(self) -> str:
        """Return the row of a Markdown table."""
        cells = (self.fault.name, self.fault.meaning, self.ours, self.theirs)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HEADER = (
    "| fault | meaning | bench-server: exit code, checks that failed | "
    "lmcache bench server: exit code, what it said |\n|---|---|---|---|"
)


class Comparison:
    """Owns the servers of one comparison; close it."""

    def __init__(self, python: str, directory: Path) -> None:
        self._python = python
        self._directory = directory
        self._servers: dict[str, tuple[Server, ExitStack]] = {}
        self._started = 0

    def close(self) -> None:
        """Stop every server."""
        for transport in list(self._servers):
            self._stop(transport)

    def row(self, fault: Fault) -> Row:
        """Run both benches into a fault."""
        ours = self._run(fault, DELAY_S, lambda urls: self._ours(fault, urls))
        theirs = self._run(
            fault, THEIR_DEADLINE_S + 1, lambda urls: _their_outcome(self._theirs(fault, urls))
        )
        return Row(fault=fault, ours=ours, theirs=theirs)

    def _run(self, fault: Fault, delay_s: float, bench: Callable[[Urls], str]) -> str:
        server = self._server(fault.transport)
        clear(server.urls)
        with running_proxy(fault, server.urls, delay_s=delay_s, kill=server.kill) as urls:
            said = bench(urls)
        if server.process.poll() is not None or not _is_empty(server.urls):
            self._stop(fault.transport)
        return said

    def _server(self, transport: str) -> Server:
        if transport not in self._servers:
            options = ["--supported-transfer-mode", "auto"]
            if transport == SHM:
                options += ["--shm-name", f"compare{os.getpid()}"]
            self._started += 1
            log = self._directory / f"server{self._started}.log"
            stack = ExitStack()
            server = stack.enter_context(real_server(self._python, log, options))
            self._servers[transport] = (server, stack)
        return self._servers[transport][0]

    def _stop(self, transport: str) -> None:
        _, stack = self._servers.pop(transport)
        stack.close()

    def _ours(self, fault: Fault, urls: Urls) -> str:
        report = self._directory / "report.json"
        report.unlink(missing_ok=True)
        return _our_outcome(run_bench(urls, options_for(fault), report))

    def _theirs(self, fault: Fault, urls: Urls) -> subprocess.CompletedProcess[str] | None:
        mode = "lmcache_driven" if fault.transport == HANDLE else "engine_driven"
        command = [str(Path(self._python).parent / "lmcache"), "bench", "server"]
        command += ["--rpc-url", urls.rpc_url, "--url", urls.http_url, "--mode", "cpu"]
        command += ["--transfer-mode", mode, "--kvcache-shape-spec", SMALL_SPEC]
        command += ["--interval", "0.2", "--start", "1", "--end", "4"]
        if "--tp-size" in fault.options:
            command += ["--tp-size", "2"]
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=THEIR_RUN_WITHIN_S,
                env={**os.environ, "LMCACHE_TRACK_USAGE": "false", "NO_COLOR": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None


def _is_empty(server: Urls) -> bool:
    """Tell whether nothing is registered; a registration goes a moment after its reply."""
    deadline = time.monotonic() + 2.0
    while True:
        status = status_of(server)
        if not status.handle_instances and not status.engine_instances:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def _our_outcome(ended: Ended) -> str:
    if ended.timed_out:
        return "killed: it did not end"
    if not ended.bad_checks:
        return f"exit {ended.exit_code}: all checks passed"
    checks = ended.report["checks"]
    failed = [name for name, check in checks.items() if check["verdict"] == "invalid"]
    unproven = [name for name, check in checks.items() if check["verdict"] == "unknown"]
    parts = [f"FAILED {', '.join(failed)}"] if failed else []
    parts += [f"UNPROVEN {', '.join(unproven)}"] if unproven else []
    return f"exit {ended.exit_code}: {'; '.join(parts)}"


def _their_outcome(ended: subprocess.CompletedProcess[str] | None) -> str:
    if ended is None:
        return f"killed: it did not end within {THEIR_RUN_WITHIN_S:g} s"
    parts = [f"exit {ended.returncode}"]
    matches = ended.stdout.count("CHECKSUM MATCH OK")
    if matches:
        parts.append(f"{matches} times CHECKSUM MATCH OK")
    for line in ended.stdout.splitlines():
        if line.startswith("Pass rate"):
            parts.append(f"pass rate {line.split()[-1]} %")
    parts += _their_trouble(ended.stdout)
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.returncode and "Traceback" in ended.stderr:
        parts.append(f"traceback, {last[:_SHOWN_CHARS]}")
    return "; ".join(parts)


def _their_trouble(stdout: str) -> list[str]:
    """Return what it said beside the usual, each once, in order."""
    found = (match.group().strip() for match in _THEIR_TROUBLE.finditer(stdout))
    unusual = dict.fromkeys(text[:_SHOWN_CHARS] for text in found if text not in _THEIR_GOOD)
    return list(unusual)


def compare(python: str, faults: Sequence[Fault]) -> Iterator[Row]:
    """Yield one row a fault."""
    with tempfile.TemporaryDirectory(prefix="faults_vs_lmcache_") as directory:
        comparison = Comparison(python, Path(directory))
        try:
            for fault in faults:
                yield comparison.row(fault)
        finally:
            comparison.close()
