"""The command line of `scripts/real_server`: a server until a signal.

`launcher.py check ARGUMENT...` prints the release, if all is well, and needs no environment;
`launcher.py run ARGUMENT...` runs the server of the environment whose python runs this.

On stdout: one JSON line with the ports, once the server is ready. On stderr: what the server says,
and how to reach it. Exit codes: 0 stopped by SIGINT or SIGTERM, 1 the server failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real.releases import BOTH, NotOfferedError, Release, release_named
from tests.real.serverprocess import ServerFailedError, ServerProcess, running_server

_PROGRAM = "real_server"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopAskedError(Exception):
    """SIGINT or SIGTERM came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    release: Release
    options: tuple[str, ...]
    rpc_port: int
    http_port: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{_PROGRAM}: error: {message}\n")


def parse(arguments: Sequence[str]) -> Asked:
    """Read the command line; what is not ours goes to the server.  Wrong usage exits 2."""
    parser = _Parser(
        prog="scripts/real_server",
        usage="%(prog)s RELEASE [--shm] [--serves MODE] [--port PORT] [--http-port PORT] "
        "[OPTION OF lmcache server ...]",
        description="Runs a real LMCache server on the loopback address until Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("release", metavar="RELEASE", type=_release)
    parser.add_argument("--shm", action="store_true", help="with a shared-memory pool")
    parser.add_argument(
        "--serves",
        metavar="MODE",
        help=f"lmcache_driven, engine_driven or {BOTH} (default: all that it serves on CPU)",
    )
    parser.add_argument("--port", type=_port, default=0, help="for RPC (default: a free one)")
    parser.add_argument("--http-port", type=_port, default=0, help="for HTTP (default: a free one)")
    given, further = parser.parse_known_args(arguments)
    release: Release = given.release
    pool = f"real{os.getpid()}" if given.shm else ""
    try:
        options = release.mode_options(given.serves or release.widest_on_cpu, pool)
    except NotOfferedError as error:
        parser.error(str(error))
    return Asked(
        release=release,
        options=(*options, *further),
        rpc_port=given.port,
        http_port=given.http_port,
    )


def _release(text: str) -> Release:
    try:
        return release_named(text)
    except LookupError as error:
        raise argparse.ArgumentTypeError(str(error.args[0])) from error


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 1 << 16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected a number from 0 to 65535")


def run(asked: Asked) -> int:
    """Run the server until a signal; return the exit code."""
    for number in _SIGNALS:
        signal.signal(number, _ask_to_stop)
    try:
        with running_server(
            sys.executable, asked.options, rpc_port=asked.rpc_port, http_port=asked.http_port
        ) as server:
            announce(asked.release, server)
            code = server.process.wait()
    except StopAskedError:
        return 0
    except ServerFailedError as error:
        print(f"{_PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    print(f"{_PROGRAM}: error: the server ended by itself, with code {code}", file=sys.stderr)
    return 1


def _ask_to_stop(number: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # the stop has a deadline; nothing may cut it short
    raise StopAskedError


def announce(release: Release, server: ServerProcess) -> None:
    """Say where the server listens: for a program on stdout, for a person on stderr."""
    print(
        f"== lmcache {release.name} serves after {server.ready_s:.1f} s; Ctrl-C stops it. Try:\n"
        f"== bench-server --mode cpu --rpc-url {server.rpc_url} --url {server.http_url} --end 3",
        file=sys.stderr,
        flush=True,
    )
    ports = {"release": release.name, "rpc_port": server.rpc_port, "http_port": server.http_port}
    print(json.dumps(ports), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Do what the first argument says; return the exit code."""
    verb, *rest = arguments
    asked = parse(rest)
    if verb == "run":
        return run(asked)
    print(asked.release.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
