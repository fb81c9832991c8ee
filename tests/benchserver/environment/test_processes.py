"""What a process and its children hold."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading

from benchserver.environment.processes import holdings_of

WAIT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_memory_of_its_own_counts_and_shared_memory_does_not() -> None:
    size = 64 << 20
    before = holdings_of(os.getpid(), with_children=False)
    with mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as shared:
        shared.write(b"x" * size)
        now = holdings_of(os.getpid(), with_children=False)
        assert before is not None
        assert now is not None
        assert now.memory_bytes - before.memory_bytes < size // 2
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own:
        own.write(b"x" * size)
        now = holdings_of(os.getpid(), with_children=False)
        assert now is not None
        assert now.memory_bytes - before.memory_bytes > size // 2


def test_descriptors_and_threads_are_counted() -> None:
    before = holdings_of(os.getpid(), with_children=False)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    with contextlib.ExitStack() as opened:
        opened.callback(thread.join)
        opened.callback(over.set)
        for _ in range(3):
            opened.enter_context(open(os.devnull, "rb"))
        now = holdings_of(os.getpid(), with_children=False)
        assert before is not None
        assert now is not None
        assert now.descriptors == before.descriptors + 3
        assert now.threads == before.threads + 1
        assert (now.pid, now.began) == (before.pid, before.began)


def test_children_count_with_it() -> None:
    child = subprocess.Popen(WAIT, stdin=subprocess.PIPE)
    try:
        alone = holdings_of(os.getpid(), with_children=False)
        whole = holdings_of(os.getpid(), with_children=True)
        assert alone is not None
        assert whole is not None
        assert alone.children == 0
        assert whole.children >= 1
        assert whole.memory_bytes > alone.memory_bytes
        assert whole.descriptors > alone.descriptors
        assert whole.threads > alone.threads
    finally:
        child.communicate()
    assert holdings_of(child.pid, with_children=True) is None
