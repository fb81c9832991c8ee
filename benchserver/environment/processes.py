"""What a process and its children hold: memory, descriptors, threads, as psutil reads it.

Memory is what is the processes' own.  What they share with others is left out: the KV pools and a
server's shared L1 lie in /dev/shm, and every process that maps them has all of them in its resident
size.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

_MOST_CHILDREN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What one process holds; `began` tells it apart from an older one of the same number."""

    pid: int
    began: float
    memory_bytes: int
    descriptors: int
    threads: int
    children: int = 0


def holdings_of(pid: int, *, with_children: bool) -> Holdings | None:
    """Return what a process holds now, with all that its children hold; None: it is not there.

    Also None if it may not be looked at: another user's.
    """
    # Loaded here: a run that is over at once does without.
    import psutil

    try:
        process = psutil.Process(pid)
        found = _of_one(process)
        children = process.children(recursive=True)[:_MOST_CHILDREN] if with_children else []
    except psutil.Error:
        return None
    all_found = [found]
    for child in children:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            all_found.append(_of_one(child))
    return Holdings(
        pid=pid,
        began=found.began,
        memory_bytes=sum(one.memory_bytes for one in all_found),
        descriptors=sum(one.descriptors for one in all_found),
        threads=sum(one.threads for one in all_found),
        children=len(all_found) - 1,
    )


def _of_one(process: Any) -> Holdings:
    with process.oneshot():
        memory = process.memory_info()
        return Holdings(
            pid=process.pid,
            began=process.create_time(),
            memory_bytes=memory.rss - memory.shared,
            descriptors=process.num_fds(),
            threads=process.num_threads(),
        )
