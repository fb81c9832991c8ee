"""What a sweep has done, on disk: a record a run, whole or not there, and a manifest.

    DIR/manifest.json          which matrix this is
    DIR/records/KEY-N.json     one run: its cell, its exit code, the report of its load
    DIR/logs/KEY-N.load.log, KEY-N.server.log

A record is written beside its place, synced and renamed, so that a crash leaves it out or whole.
One sweep at a time has the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchserver.errors import FatalError, UsageError, one_line, os_reason

FORMAT = 1
_MANIFEST = "manifest.json"
_LOCK = "lock"
_RECORDS, _LOGS = "records", "logs"
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run that was made.

    `exit_code`: of the load; None: it was not started, or ended by a signal.  `trouble`: what kept
    it from a report, "" if nothing did.  `report`: that report, {} without one.
    """

    name: str
    cell: Mapping[str, Any]
    command: tuple[str, ...]
    server: tuple[str, ...]
    seed: int
    exit_code: int | None
    trouble: str
    wall_s: float
    report: Mapping[str, Any]


class Records:
    """The directory of one sweep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Record | None:
        """Return the record of a run; None if there is none, FatalError if it is not one."""
        path = self._record(name)
        try:
            document = _read(path)
            if document is None:
                return None
            if document.pop("format") != FORMAT or document["name"] != name:
                raise ValueError("of another format, or another run")
            words = {key: tuple(document[key]) for key in ("command", "server")}
            return Record(**{**document, **words})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FatalError(
                f"{path}: not a record ({one_line(error, 80)}); remove it to run it again"
            ) from error

    def write(self, record: Record) -> None:
        """Keep a record; FatalError if it cannot be written."""
        write_whole(self._record(record.name), {"format": FORMAT, **asdict(record)})

    def log(self, name: str, of: str) -> Path:
        """Return where the log of a run's server, or load, is."""
        return self.folder / _LOGS / f"{name}.{of}.log"

    def _record(self, name: str) -> Path:
        return self.folder / _RECORDS / f"{name}.json"


@contextmanager
def open_records(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Records]:
    """Have the directory of a sweep, made if need be.

    UsageError if it belongs to another matrix or another sweep that goes on, or cannot be used.
    """
    shown = f"--out {one_line(folder, 120)}"
    try:
        for name in (_RECORDS, _LOGS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{shown}: {os_reason(error)}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{shown}: another sweep is at work there") from error
        _settle_manifest(shown, folder / _MANIFEST, manifest)
        yield Records(folder)
    finally:
        os.close(lock)


def _settle_manifest(shown: str, path: Path, manifest: Mapping[str, Any]) -> None:
    try:
        found = _read(path)
    except ValueError as error:
        raise UsageError(f"{shown}: {path.name} is not that of a sweep: {error}") from error
    if found is None:
        write_whole(path, manifest)
        return
    ours, theirs = manifest["matrix"], found.get("matrix", "none")
    if theirs != ours:
        raise UsageError(
            f"{shown} holds another sweep: {one_line(theirs)[:12]}, and this is {ours[:12]}; the "
            "matrix, --slo, --max-rate, --seed or --server-cmd has changed: name another directory"
        )


def _read(path: Path) -> Any:
    """Return a document, None if there is no file; ValueError if it is not JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FatalError(f"{path}: {os_reason(error)}") from error
    if len(content) > _MAX_BYTES:
        raise ValueError(f"longer than {_MAX_BYTES} bytes")
    document = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def read_report(path: Path) -> dict[str, Any]:
    """Return the report that a load has written; ValueError if there is none."""
    found: dict[str, Any] | None = _read(path)
    if found is None:
        raise ValueError("it wrote no report")
    return found


def write_whole(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON to a file so that it is there whole, or not at all."""
    write_bytes_whole(path, json.dumps(document, indent=1).encode() + b"\n")


def write_bytes_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, on the disk, or not at all; FatalError if not."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise FatalError(f"cannot write {path}: {os_reason(error)}") from error
