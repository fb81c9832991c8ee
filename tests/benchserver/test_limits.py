"""What the system allows: raised where it can be, and said in one line where it cannot."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchserver import limits
from benchserver.errors import FatalError
from benchserver.limits import (
    Amount,
    allow_descriptors_of_clients,
    require,
    require_shared_memory,
    run_need,
    selftest_need,
    server_need,
    shortage,
)

ROOT = Path(__file__).parents[2]
UNLIMITED = resource.RLIM_INFINITY
FILES, SPACE, PROCESSES = resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_NPROC
SMALL = run_need(workers=1, pool_bytes=0, gpu=False)


class System:
    """Limits that are set by hand, in the place of the system's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.limits = dict.fromkeys((FILES, SPACE, PROCESSES), (UNLIMITED, UNLIMITED))
        self.refuses = False
        self._path = path
        monkeypatch.setattr(resource, "getrlimit", self.limits.__getitem__)
        monkeypatch.setattr(resource, "setrlimit", self._set)
        monkeypatch.setattr(limits, "_PROC", path)
        monkeypatch.setattr(limits, "_MAX_MAP_COUNT", path / "max_map_count")
        monkeypatch.setattr(limits, "_share_one_arena", lambda: None)
        self.use(descriptors=4, pages=10, mappings=7, max_mappings=65530)

    def _set(self, number: int, pair: tuple[int, int]) -> None:
        if self.refuses:
            raise ValueError("not allowed to raise maximum limit")
        self.limits[number] = pair

    def use(self, *, descriptors: int, pages: int, mappings: int, max_mappings: int) -> None:
        """Let the kernel's files say so."""
        (self._path / "fd").mkdir(exist_ok=True)
        for number in range(descriptors + 1):  # and that of the look itself
            (self._path / "fd" / str(number)).touch()
        (self._path / "statm").write_text(f"{pages} 2 3 4 5 6 7\n")
        (self._path / "maps").write_text("a mapping\n" * mappings)
        (self._path / "max_map_count").write_text(f"{max_mappings}\n")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> System:
    return System(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("amount", "total", "text"),
    [
        (Amount(base=40, each=6, count=200, thing="worker"), 1240, "40, 6 for each of 200 workers"),
        (Amount(base=40, each=6, count=1, thing="worker"), 46, "40, 6 for a worker"),
        (Amount(base=40, each=0, count=9, thing="job"), 40, "40"),
    ],
)
def test_a_sum_is_said_as_it_comes_about(amount: Amount, total: int, text: str) -> None:
    assert (amount.total, str(amount)) == (total, text)


def test_what_is_there_is_left_as_it_is(system: System) -> None:
    before = dict(system.limits)
    require(SMALL, server_need(l1_bytes=1 << 40), selftest_need(jobs=64))
    exactly = 4 + SMALL.descriptors.total
    system.limits[FILES] = before[FILES] = (exactly, exactly)
    require(SMALL)
    assert system.limits == before


def test_soft_limits_are_raised_as_far_as_needed(system: System) -> None:
    need = run_need(workers=200, pool_bytes=1 << 20, gpu=False)
    system.limits[FILES] = (1024, 4096)
    system.limits[SPACE] = (1 << 20, UNLIMITED)
    require(need)
    assert system.limits[FILES] == (4 + 24 + 200 * 6, 4096)
    assert system.limits[SPACE] == (
        10 * resource.getpagesize() + need.address_bytes.total,
        UNLIMITED,
    )


def test_too_few_descriptors_are_one_line_with_the_arithmetic(system: System) -> None:
    system.limits[FILES] = (256, 1024)
    with pytest.raises(FatalError) as caught:
        require(run_need(workers=200, pool_bytes=0, gpu=False))
    assert str(caught.value) == (
        "the run needs 1228 file descriptors (4 in use, 24, 6 for each of 200 workers), "
        "`ulimit -n` allows 1024; use a smaller --tp-size, or raise the limit"
    )
    assert system.limits[FILES] == (256, 1024)


@pytest.mark.parametrize(
    ("ranks", "clients", "instead"),
    [
        (1, 1, "a smaller --kvcache-shape-spec"),
        (2, 1, "a smaller --kvcache-shape-spec or --tp-size"),
        (1, 4, "a smaller --kvcache-shape-spec or fewer clients"),
        (2, 4, "a smaller --kvcache-shape-spec or --tp-size or fewer clients"),
    ],
)
def test_less_of_what_was_asked_for_needs_less(ranks: int, clients: int, instead: str) -> None:
    need = run_need(workers=ranks * clients, pool_bytes=1 << 20, gpu=False, clients=clients)
    assert need.address_bytes.instead == instead
    assert need.descriptors.instead == instead.replace("--kvcache-shape-spec or ", "").replace(
        "a smaller fewer", "fewer"
    ).replace("a smaller --kvcache-shape-spec", "")


def test_on_gpus_every_transfer_under_way_waits_in_a_thread() -> None:
    one = run_need(workers=4, pool_bytes=0, gpu=True, clients=2)
    two = run_need(workers=4, pool_bytes=0, gpu=True, clients=2, in_flight=3)
    assert two.threads - one.threads == 8


def test_a_limit_that_may_not_be_raised_is_what_there_is(system: System) -> None:
    system.limits[FILES] = (20, UNLIMITED)
    system.refuses = True
    with pytest.raises(FatalError, match=r"the run needs 34 .* `ulimit -n` allows 20; raise the "):
        require(SMALL)


def test_where_it_cannot_even_look_all_is_in_use(system: System, tmp_path: Path) -> None:
    for path in (tmp_path / "fd").iterdir():
        path.unlink()
    (tmp_path / "fd").rmdir()
    system.limits[FILES] = (5, 5)
    with pytest.raises(FatalError, match=r"needs 35 file descriptors \(5 in use, 24, 6 for a wor"):
        require(SMALL)


def test_address_space_counts_every_pool(system: System) -> None:
    used = 10 * resource.getpagesize()
    needed = used + (256 << 20) + 3 * (1 << 20) + 3 * (1 << 30)
    system.limits[SPACE] = (1 << 31, needed - 1)
    need = run_need(workers=3, pool_bytes=1 << 30, gpu=False)
    reason = rf"needs {needed} bytes of address space .* allows {needed - 1}; use a smaller --kvc"
    with pytest.raises(FatalError, match=reason):
        require(need)
    system.limits[SPACE] = (needed, needed)
    require(need)


def test_a_servers_l1_counts(system: System) -> None:
    system.limits[SPACE] = (1 << 30, 1 << 30)
    require(server_need(l1_bytes=1 << 29))
    with pytest.raises(FatalError, match=r"^the server needs .* `ulimit -v` .* --l1-size-gb, or"):
        require(server_need(l1_bytes=1 << 30))
    with pytest.raises(FatalError, match=r"allows 1073741824; use fewer tokens, or raise"):
        require(server_need(l1_bytes=1 << 30, instead="fewer tokens"))


def test_too_few_mappings(system: System) -> None:
    system.use(descriptors=4, pages=10, mappings=388, max_mappings=388 + 1004)
    require(SMALL)
    system.use(descriptors=4, pages=10, mappings=389, max_mappings=388 + 1004)
    with pytest.raises(FatalError, match=r"needs 1393 memory mappings \(389 in use, 1000, "):
        require(SMALL)


def test_a_kernel_that_does_not_say_how_many_mappings(system: System, tmp_path: Path) -> None:
    (tmp_path / "max_map_count").unlink()
    require(SMALL)


def refusing_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the system start so many threads at most; return a list with that number in it."""
    start, allowed, others = threading.Thread.start, [count], threading.active_count()

    def bounded(thread: threading.Thread) -> None:
        if threading.active_count() - others >= allowed[0]:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", bounded)
    return allowed


def test_too_few_threads(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    stack = threading.stack_size()
    refusing_after(SMALL.threads, monkeypatch)
    system.limits[PROCESSES] = (50, 50)
    require(SMALL)
    with pytest.raises(
        FatalError,
        match=rf"^{2 * SMALL.threads} threads needed, the system gives {SMALL.threads}; .*",
    ):
        require(SMALL, server_need(l1_bytes=1))
    assert threading.active_count() == before
    assert threading.stack_size() == stack


def test_a_soft_limit_of_processes_is_raised(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = refusing_after(3, monkeypatch)
    system.limits[PROCESSES] = (3, 100)
    really_set = resource.setrlimit

    def allow_more(number: int, pair: tuple[int, int]) -> None:
        really_set(number, pair)
        allowed[0] = pair[0]

    monkeypatch.setattr(resource, "setrlimit", allow_more)
    require(SMALL)
    assert system.limits[PROCESSES] == (100, 100)


def test_a_gpu_needs_more_threads_and_no_pool_on_the_host() -> None:
    host = run_need(workers=4, pool_bytes=1 << 30, gpu=False)
    device = run_need(workers=4, pool_bytes=0, gpu=True)
    assert device.threads == host.threads + 32 + 4
    assert device.address_bytes.total == host.address_bytes.total - (4 << 30)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((64, 100_000), (24 + 2048, 100_000)),
        ((64, UNLIMITED), (24 + 2048, UNLIMITED)),
        ((64, 1000), (1000, 1000)),
        ((5000, 5000), (5000, 5000)),
    ],
)
def test_a_server_takes_what_it_can_for_its_clients(
    system: System, before: tuple[int, int], after: tuple[int, int]
) -> None:
    system.limits[FILES] = before
    allow_descriptors_of_clients()
    assert system.limits[FILES] == after
    system.limits[FILES], system.refuses = before, True
    allow_descriptors_of_clients()
    assert system.limits[FILES] == before


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory: see"),
        (RuntimeError("can't start new thread"), "out of threads: see"),
        (OSError(errno.EMFILE, "x"), "out of file descriptors: see"),
        (OSError(errno.ENFILE, "x"), "out of file descriptors: see"),
        (OSError(errno.ENOMEM, "x"), "out of memory or mappings: see"),
        (OSError(errno.EIO, "x"), ""),
        (RuntimeError("x"), ""),
        (ValueError("x"), ""),
    ],
)
def test_what_ran_out(error: Exception, text: str) -> None:
    assert shortage(error).startswith(text)
    assert bool(shortage(error)) is bool(text)


def run_limited(soft: int, hard: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with limits of descriptors."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return subprocess.run(
        [sys.executable, "-m", "benchserver", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        preexec_fn=limit,
    )


SPEC = ("--kvcache-shape-spec", "(2,128,16,2,8):float16:2")
EMBEDDED = ("--embedded", "--end", "1", "--interval", "0", *SPEC)


@pytest.mark.parametrize(
    "words", [EMBEDDED, ("--mode", "cpu", "--end", "1"), ("serve",), ("selftest",)]
)
@pytest.mark.parametrize("allowed", [5, 16])
def test_next_to_no_descriptors_are_one_line(
    tmp_path: Path, words: tuple[str, ...], allowed: int
) -> None:
    report = tmp_path / "report.json"
    reports = words[0].startswith("--")
    ended = run_limited(allowed, allowed, *words, *(("--json", str(report)) if reports else ()))
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("bench-server: error: the ")
    assert " file descriptors (" in line
    assert f"`ulimit -n` allows {allowed};" in line
    if reports:
        document = json.loads(report.read_text())
        assert document["exit_code"] == 1
        assert "`ulimit -n` allows" in report.read_text()


def test_a_low_soft_limit_stops_nobody() -> None:
    ended = run_limited(24, 4096, *EMBEDDED)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


@pytest.mark.parametrize(
    ("workers", "each", "size_pages", "refused"),
    [(4, 4096, 4, False), (4, 4097, 4, True), (1, 1 << 40, 4, False), (4, 1 << 40, 0, False)],
)
def test_pools_that_shared_memory_cannot_hold_are_refused_before_any_is_made(
    monkeypatch: pytest.MonkeyPatch, workers: int, each: int, size_pages: int, refused: bool
) -> None:
    size = SimpleNamespace(f_frsize=4096, f_blocks=size_pages)
    monkeypatch.setattr(os, "statvfs", lambda path: size)
    pools = Amount(base=0, each=each, count=workers, thing="worker", instead="fewer clients")
    if not refused:
        require_shared_memory(pools)
        return
    with pytest.raises(FatalError) as caught:
        require_shared_memory(pools)
    assert str(caught.value) == (
        "the pools need 16388 bytes in /dev/shm (4097 for each of 4 workers), and it has 16384; "
        "use fewer clients, or a larger /dev/shm"
    )


def test_without_shared_memory_the_first_pool_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_SHM", Path("/nowhere"))
    require_shared_memory(Amount(base=0, each=1 << 50, count=9, thing="worker"))
