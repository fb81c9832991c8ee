"""Where reports go: opened before a run, so that it does not end with one that nobody gets.

A file is replaced whole, and can be written again.  A pipe, a device or an open descriptor is
written to once, for as long as somebody reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from benchserver.check.run import RUN
from benchserver.check.verdict import failed
from benchserver.errors import FatalError, UsageError, one_line, os_reason
from benchserver.outlet import Outlet, SecondsLeft, outlet_for, outlet_to
from benchserver.result import RunResult

READER_WITHIN_S = 5.0
"""How long a FIFO may wait for its reader before the run, and a reader may stop after it."""

_LAST_WRITE_S = 1.0
"""How long a write that was given up may take to notice that its reader is gone."""

_LOOK_S = 0.05
_NO_SUCH_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_MAX_REPORT_BYTES = 1 << 30
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", re.ASCII)
_STREAMS = {"-": 1, "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


class Destination(Protocol):
    """Where one report goes."""

    rewritable: bool
    """It may be written again, and holds then what came last."""

    def write(self, content: bytes) -> None:
        """Write the report; FatalError if that cannot be done, or nobody reads it."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


class FileDestination:
    """A file, replaced whole or not at all; in place where its directory takes no new names."""

    rewritable = True

    def __init__(self, option: str, path: str) -> None:
        """Look whether it can be written; UsageError if not.  A link is followed."""
        self._path = path
        self._target = Path(os.path.realpath(path))
        reason = _why_no_file_in(self._target.parent)
        # A file that is mounted by itself, as containers have them, cannot be replaced either.
        stays = bool(reason) or os.path.ismount(self._target)
        self._in_place = stays and os.access(self._target, os.W_OK)
        if reason and not self._in_place:
            shown, place = one_line(path, 120), one_line(self._target.parent, 120)
            raise UsageError(f"{option} {shown}: cannot make a file in {place}: {reason}")

    def write(self, content: bytes) -> None:
        """Write the report, in place of an older one."""
        try:
            if self._in_place:
                self._target.write_bytes(content)
            else:
                _replace(self._target, content)
        except OSError as error:
            raise _cannot_write(self._path, os_reason(error)) from error

    def close(self) -> None:
        """Nothing is open."""


class StreamDestination:
    """A pipe, a device, or a descriptor that was open when we were started."""

    rewritable = False

    def __init__(self, path: str, outlet: Outlet, seconds_left: SecondsLeft, close: int) -> None:
        """Write to an outlet, and `close` a descriptor at the end; -1: none."""
        self._path = path
        self._outlet = outlet
        self._seconds_left = seconds_left
        self._descriptor = close

    def write(self, content: bytes) -> None:
        """Write the report, as long as somebody reads."""
        self._outlet.write_bytes(content)
        if reason := self._outlet.drain(READER_WITHIN_S, self._seconds_left):
            raise _cannot_write(self._path, reason)

    def close(self) -> None:
        """Let the reader see the end.

        What is still written to stays open until the process ends: its number could be given to
        another file, which would then get the rest.
        """
        if self._descriptor < 0:
            return
        if self._outlet.ended_within(self._seconds_left(_LAST_WRITE_S)):
            os.close(self._descriptor)
            self._descriptor = -1


def open_destination(option: str, path: str, seconds_left: SecondsLeft) -> Destination:
    """Return where a report goes, ready to be written; UsageError if it cannot be."""
    number = _descriptor_in(path)
    try:
        if names_stdout(path) and sys.stdout is not None:
            return StreamDestination(path, outlet_for(sys.stdout), seconds_left, -1)
        if number >= 0:
            return _stream(path, os.dup(number), seconds_left)
        kind = _kind_of(path)
        if stat.S_ISREG(kind):
            return FileDestination(option, path)
        if not stat.S_ISDIR(kind):
            return _stream(path, _open_stream(option, path), seconds_left)
    except ValueError:
        pass  # a NUL: no file has such a name
    except OSError as error:
        if error.errno not in _NO_SUCH_PLACE:
            raise UsageError(f"{option} {one_line(path, 120)}: {os_reason(error)}") from error
    shown = one_line(path, 120) or "''"
    raise UsageError(f"{option} {shown}: not a file in an existing directory")


def names_stdout(path: str) -> bool:
    """Tell whether a report goes to where the lines of a run go."""
    if _descriptor_in(path) == 1:
        return True
    try:
        ours, named = os.fstat(1), os.stat(path)
    except (OSError, ValueError):
        return False
    is_one = stat.S_ISREG(named.st_mode) or stat.S_ISFIFO(named.st_mode)
    return is_one and os.path.samestat(ours, named)


def same_destination(first: str, second: str) -> bool:
    """Tell whether two paths name one file, existing or not."""
    if names_stdout(first) and names_stdout(second):
        return True
    return os.path.realpath(first) == os.path.realpath(second)


Report = tuple[Destination, Callable[[RunResult], bytes]]
"""Where a report goes, and what makes it."""


def deliver(result: RunResult, reports: Sequence[Report]) -> list[str]:
    """Write all reports; one that cannot be written fails the run, and the others say so.

    Files come first: they can be written again once it is known that a pipe took nothing.  Returns
    what went wrong.
    """
    good, wrong = list[Report](), list[str]()
    for report in sorted(reports, key=lambda report: not report[0].rewritable):
        try:
            _write(result, report)
            good.append(report)
        except FatalError as error:
            wrong.append(str(error))
            result.ledger.add([failed(RUN, str(error))])
    if wrong:
        _write_again(result, good)
    return wrong


def fail(result: RunResult, reports: Iterable[Report], trouble: str) -> None:
    """Let the run fail for what has happened since its reports were written, and tell the files."""
    result.ledger.add([failed(RUN, trouble)])
    _write_again(result, reports)


class AppendedFile:
    """A file that others write to as well: a report is put behind what is there.

    Written again, it takes the place of what this wrote before, unless others wrote behind it.
    """

    rewritable = True

    def __init__(self, option: str, path: str) -> None:
        """Look whether it can be written; UsageError if not."""
        self._path = path
        self._wrote: tuple[int, int] | None = None
        """Where it began and ended, the last time."""
        there = os.path.exists(path)
        reason = "" if there else _why_no_file_in(Path(path).parent)
        if reason or (there and not os.access(path, os.W_OK)):
            reason = reason or "it may not be written"
            raise UsageError(f"{option} {one_line(path, 120)}: {reason}")

    def write(self, content: bytes) -> None:
        """Write the report behind what is there."""
        try:
            with open(self._path, "ab") as file:
                end = os.fstat(file.fileno()).st_size
                if self._wrote is not None and self._wrote[1] == end:
                    end = self._wrote[0]
                    file.truncate(end)
                self._wrote = (end, end + len(content))
                file.write(content)
        except OSError as error:
            raise _cannot_write(self._path, os_reason(error)) from error

    def close(self) -> None:
        """Nothing is open."""


def open_appended(option: str, path: str, seconds_left: SecondsLeft) -> Destination:
    """As `open_destination`, but a file keeps what it has."""
    try:
        regular = _descriptor_in(path) < 0 and stat.S_ISREG(_kind_of(path))
    except (OSError, ValueError):
        regular = False
    if regular:
        return AppendedFile(option, path)
    return open_destination(option, path, seconds_left)


def _write_again(result: RunResult, reports: Iterable[Report]) -> None:
    for report in reports:
        if report[0].rewritable:
            with contextlib.suppress(FatalError):
                _write(result, report)


def _write(result: RunResult, report: Report) -> None:
    destination, content = report
    destination.write(content(result))


def _cannot_write(path: str, reason: str) -> FatalError:
    return FatalError(f"cannot write the report {one_line(path, 200)}: {reason}")


def _descriptor_in(path: str) -> int:
    """Return the descriptor that a path names, or -1."""
    named = _DESCRIPTOR.fullmatch(path)
    return int(named[1]) if named else _STREAMS.get(path, -1)


def _kind_of(path: str) -> int:
    """Return the mode of what is there; of a file, if its directory is."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        if path and os.path.isdir(Path(path).parent):
            return stat.S_IFREG
        raise


def _stream(path: str, descriptor: int, seconds_left: SecondsLeft) -> StreamDestination:
    outlet = outlet_to(descriptor, max_waiting=_MAX_REPORT_BYTES)
    return StreamDestination(path, outlet, seconds_left, descriptor)


def _open_stream(option: str, path: str) -> int:
    """Open a pipe or a device, without waiting for ever for its reader."""
    deadline_s = time.monotonic() + READER_WITHIN_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= deadline_s:
                raise UsageError(
                    f"{option} {one_line(path, 120)}: nobody has opened this pipe for reading "
                    f"within {READER_WITHIN_S:g} s; start its reader first"
                ) from error
        time.sleep(_LOOK_S)


def _why_no_file_in(directory: Path) -> str:
    """Return why no file can be made in a directory, or ""."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return os_reason(error)


def _replace(target: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
