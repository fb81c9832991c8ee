"""What the system lets this process have, looked at before anything is opened.

Out of descriptors or threads in the middle, libzmq aborts the process, and whatever else was under
way fails with a cause that says nothing.  So each command says first what it will need at most;
a soft limit that is lower is raised as far as the hard one goes, and if that is not enough, the
command ends in one line with the arithmetic.  The numbers were measured (Linux, Python 3.11, libzmq
4.3, 1 to 200 workers), and are rounded up.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchserver.errors import FatalError

_PROC = Path("/proc/self")
_SHM = Path("/dev/shm")
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")

_MIB = 1 << 20

_RUN_DESCRIPTORS = 24
_WORKER_DESCRIPTORS = 6
"""A run had 13, three of them at its start, and 6 for each worker: three of its socket, two of what
watches it, the segment."""

_SERVER_DESCRIPTORS = 24
_CLIENT_DESCRIPTORS = 2
_MOST_CLIENTS = 1024
"""A server had 14, and 2 for each client; what it may need beyond the first is taken if it can."""

_CASE_DESCRIPTORS = 12
"""Pipes and files of the two processes of a self-test's run."""

_THREADS = 6 + min(4, os.cpu_count() or 1)
"""Two of libzmq, two that resolve names, one that draws, one that looks whether the loop turns; and
those that copy and compare, of a run as of a server.  Either had 7 at most on two cores."""

_PROBE_STACK_BYTES = 1 << 18

_DEVICE_THREADS = 32
"""torch, and the threads that compute digests; each worker has one more, which waits for events."""

_RUN_BYTES = 256 * _MIB
_SERVER_BYTES = 192 * _MIB
"""Of address space, for libraries, their memory and the stacks of threads; a server's without its
L1.  With one arena for all threads, 254 MiB in all were enough for a run, and for a server with an
L1 of 64 MiB; with 215 MiB a run stood still."""

_WORKER_BYTES = 1 * _MIB

_M_ARENA_MAX = -8
"""glibc's number for it, of malloc.h."""

_RUN_MAPPINGS = 1000
_WORKER_MAPPINGS = 4
"""A run had 388, and one for each worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much of something is needed: a base, and so much for each of a number of things."""

    base: int
    each: int
    count: int
    thing: str
    instead: str = ""
    """What the user may ask for in place of it, so that less is needed."""

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.base + self.each * self.count

    def __str__(self) -> str:
        """Return the sum as it comes about."""
        if not self.each:
            return str(self.base)
        things = f"each of {self.count} {self.thing}s" if self.count > 1 else f"a {self.thing}"
        return f"{self.base}, {self.each} for {things}"

    @property
    def remedy(self) -> str:
        """Return what to do where it is not there."""
        return f"use {self.instead}, or raise the limit" if self.instead else "raise the limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a command needs at most, beyond what the process has when it begins."""

    who: str
    descriptors: Amount
    address_bytes: Amount
    mappings: Amount
    threads: int


def run_need(
    *, workers: int, pool_bytes: int, gpu: bool, clients: int = 1, in_flight: int = 1
) -> Need:
    """Return what a run needs; `pool_bytes` is the size of each worker's pool in host memory.

    The workers are those of so many clients, each with `in_flight` requests under way.
    """
    of_workers = partial(Amount, count=workers, thing="worker")
    less = [*(["--tp-size"] if workers > clients else []), *(["clients"] if clients > 1 else [])]
    fewer = _less("", *less)
    smaller = _less("--kvcache-shape-spec", *less)
    return Need(
        who="the run",
        descriptors=of_workers(base=_RUN_DESCRIPTORS, each=_WORKER_DESCRIPTORS, instead=fewer),
        address_bytes=of_workers(base=_RUN_BYTES, each=_WORKER_BYTES + pool_bytes, instead=smaller),
        mappings=of_workers(base=_RUN_MAPPINGS, each=_WORKER_MAPPINGS, instead=fewer),
        threads=_THREADS + (_DEVICE_THREADS + workers * in_flight if gpu else 0),
    )


def _less(*of: str) -> str:
    """Say what the user may ask for in place of it."""
    options = " or ".join(name for name in of if name.startswith("--"))
    parts = [f"a smaller {options}"] if options else []
    return " or ".join([*parts, *(["fewer clients"] if "clients" in of else [])])


def server_need(
    *, l1_bytes: int, clients: int = 1, instead: str = "a smaller --l1-size-gb"
) -> Need:
    """Return what a server of so many clients needs; `instead`: how its L1 becomes smaller."""
    of_clients = partial(Amount, count=clients, thing="client")
    return Need(
        who="the server",
        descriptors=of_clients(base=_SERVER_DESCRIPTORS, each=_CLIENT_DESCRIPTORS),
        address_bytes=of_clients(
            base=_SERVER_BYTES + l1_bytes, each=_WORKER_BYTES, instead=instead
        ),
        mappings=of_clients(base=_RUN_MAPPINGS, each=_WORKER_MAPPINGS),
        threads=_THREADS,
    )


def selftest_need(*, jobs: int) -> Need:
    """Return what the self-test's own process needs; its children look for themselves."""
    of_jobs = partial(Amount, count=jobs, thing="job", instead="fewer --jobs" if jobs > 1 else "")
    return Need(
        who="the self-test",
        descriptors=of_jobs(base=_RUN_DESCRIPTORS, each=_CASE_DESCRIPTORS),
        address_bytes=of_jobs(base=_RUN_BYTES, each=0),
        mappings=of_jobs(base=_RUN_MAPPINGS, each=0),
        threads=_THREADS,
    )


def require(*needs: Need) -> None:
    """Raise soft limits as needed; FatalError for what the system does not let this process have.

    Of several processes that one command starts, each has limits of its own, except for threads:
    their user has them together.
    """
    for need in needs:
        _allow(_DESCRIPTORS, need.descriptors, need.who)
        _allow(_ADDRESS_SPACE, need.address_bytes, need.who)
        _require_mappings(need.mappings, need.who)
    _require_threads(sum(need.threads for need in needs))


def require_shared_memory(pools: Amount) -> None:
    """Raise FatalError for several pools that /dev/shm could not hold were it empty.

    Whoever makes a pool looks whether there is room for it; by then others have been made.
    """
    if pools.count < 2:
        return
    try:
        place = os.statvfs(_SHM)
    except OSError:
        return  # the first pool says why
    size = place.f_frsize * place.f_blocks
    if size and pools.total > size:  # 0: without a limit
        raise FatalError(
            f"the pools need {pools.total} bytes in {_SHM} ({pools.each} for each of "
            f"{pools.count} {pools.thing}s), and it has {size}; use {pools.instead}, or a larger "
            f"{_SHM}"
        )


def allow_descriptors_of_clients() -> None:
    """Raise a server's soft limit for as many clients as it may have, as far as that goes."""
    wanted = _SERVER_DESCRIPTORS + _MOST_CLIENTS * _CLIENT_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not _fits(wanted, soft):
        aim = wanted if _fits(wanted, hard) else hard
        with suppress(OSError, ValueError):  # it does without, then
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    number: int
    what: str
    shell: str


_DESCRIPTORS = _Limit(
    number=resource.RLIMIT_NOFILE, what="file descriptors", shell="`ulimit -n` allows"
)
_ADDRESS_SPACE = _Limit(
    number=resource.RLIMIT_AS, what="bytes of address space", shell="`ulimit -v` allows"
)


def shortage(error: BaseException) -> str:
    """Return what ran out, in one line, if that is what an error says; else "".

    Others take from the same limits: what was there at the start may be gone later.
    """
    if isinstance(error, MemoryError):
        return "out of memory: see `ulimit -v`, `ulimit -d` and the memory of the machine"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "out of threads: see `ulimit -u`, `ulimit -v` and pids.max of the control group"
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        return "out of file descriptors: see `ulimit -n`"
    if number == errno.ENOMEM:
        return "out of memory or mappings: see `ulimit -v` and sysctl vm.max_map_count"
    return ""


def _allow(limit: _Limit, amount: Amount, who: str) -> None:
    soft, hard = resource.getrlimit(limit.number)
    if soft == resource.RLIM_INFINITY:
        return
    if limit is _ADDRESS_SPACE:
        _share_one_arena()
    used = _used(limit, soft)
    total = used + amount.total
    if _fits(total, soft):
        return
    if _fits(total, hard):
        with suppress(OSError, ValueError):
            resource.setrlimit(limit.number, (total, hard))
            return
        hard = soft
    raise FatalError(
        f"{who} needs {total} {limit.what} ({used} in use, {amount}), {limit.shell} {hard}; "
        f"{amount.remedy}"
    )


def _share_one_arena() -> None:
    """Let all threads take memory from one place: glibc reserves 64 MiB for each otherwise."""
    # Loaded here: few processes have such a limit.
    import ctypes

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _fits(total: int, limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or total <= limit


def _used(limit: _Limit, soft: int) -> int:
    """Return what this process has of it; where it cannot even look, all that it may have."""
    try:
        if limit is _DESCRIPTORS:
            return len(os.listdir(_PROC / "fd")) - 1  # without that of the look itself
        pages = int((_PROC / "statm").read_text().split()[0])
    except OSError:
        return soft
    return pages * resource.getpagesize()


def _require_mappings(amount: Amount, who: str) -> None:
    try:
        limit = int(_MAX_MAP_COUNT.read_text())
        used = len((_PROC / "maps").read_text(errors="replace").splitlines())
    except (OSError, ValueError):
        return  # a kernel that does not say
    total = used + amount.total
    if total > limit:
        raise FatalError(
            f"{who} needs {total} memory mappings ({used} in use, {amount}), sysctl "
            f"vm.max_map_count allows {limit}; {amount.remedy}"
        )


def _require_threads(count: int) -> None:
    """Start so many threads at once, and end them: what bounds them is not one limit."""
    started = _started_threads(count)
    if started < count and _raise_processes():
        started = _started_threads(count)
    if started < count:
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        allowed = "no limit" if soft == resource.RLIM_INFINITY else str(soft)
        raise FatalError(
            f"{count} threads needed, the system gives {started}; see `ulimit -u` ({allowed}, for "
            "all processes of this user), `ulimit -v`, and pids.max of the control group"
        )


def _raise_processes() -> bool:
    """Raise the soft limit of a user's processes as far as it goes; tell whether it was lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == hard:
        return False
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
        return True
    return False


def _started_threads(count: int) -> int:
    """Return how many of `count` threads could run at once."""
    go_on = threading.Event()
    threads = []
    # How many is the question; the memory of their stacks is in the address space's sum.
    before = threading.stack_size(_PROBE_STACK_BYTES)
    try:
        for _ in range(count):
            thread = threading.Thread(target=go_on.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):
        pass  # no more: that is the answer
    finally:
        threading.stack_size(before)
        go_on.set()
        for thread in threads:
            thread.join()
    return len(threads)
