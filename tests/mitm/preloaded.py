"""A process that has loaded bench-server already, and becomes whatever command is asked for.

    python -m tests.mitm.preloaded DESCRIPTOR

Loading takes a bench or a server half a second of CPU time, and tests start hundreds.  This process
loads once; for each order that comes on the socket it forks a child, which runs the command's own
entry point with the order's arguments, variables, folder and streams, and ends as any Python does.
It starts no thread and no loop of its own, so there is nothing that a fork could tear.  It ends
when the socket does.

tests/mitm/forked.py gives the orders.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchserver.__main__ import main as run_command

MODULES = (
    "benchserver.cli.main",
    "benchserver.cli.play",
    "benchserver.cli.record",
    "benchserver.cli.reports",
    "benchserver.embedded",
    "benchserver.refserver.server",
    "benchserver.report.text",
    "benchserver.stage.process",
)
"""What a bench and a server load when they run, with all that these load."""

STREAMS = 3
ORDER_BYTES = 1 << 17
"""More than the arguments and variables of a command may be: the most that a socket takes."""

PID_BYTES = STATUS_BYTES = 4


def main() -> None:
    """Load, fork for each order, and in a child run the command."""
    for module in MODULES:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        arguments = _serve(orders)
    if arguments is not None:
        sys.argv[1:] = arguments
        run_command()


def _serve(orders: socket.socket) -> Sequence[str] | None:
    """Fork for each order; return a child's arguments in the child, None at the end."""
    children: dict[int, tuple[int, int]] = {}
    while True:
        waiting = select.poll()
        for descriptor in (orders.fileno(), *children):
            waiting.register(descriptor, select.POLLIN)
        for descriptor, _ in waiting.poll():
            if descriptor != orders.fileno():
                _tell_end(descriptor, *children.pop(descriptor))
                continue
            order, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES, STREAMS + 1)
            if not order:
                return None
            *streams, told = descriptors
            pid = os.fork()
            if not pid:
                _close(told, *children, *(told for _, told in children.values()))
                return _become(json.loads(order), streams)
            _close(*streams)
            os.write(told, pid.to_bytes(PID_BYTES, "big"))
            children[os.pidfd_open(pid)] = (pid, told)


def _tell_end(descriptor: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(BrokenPipeError):  # nobody asks any more
        os.write(told, code.to_bytes(STATUS_BYTES, "big", signed=True))
    _close(told, descriptor)


def _become(order: Mapping[str, Any], streams: Sequence[int]) -> Sequence[str]:
    """Take over what the order says of the process; return the arguments."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    _close(*streams)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["variables"])
    arguments: Sequence[str] = order["arguments"]
    return arguments


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    main()
