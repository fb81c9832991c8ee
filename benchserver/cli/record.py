"""What a run's reports say beside its result: noted at its begin, read when it is over.

Nothing here may delay the first call to a server, or the end: what takes time is read afterwards,
in a thread that is waited for so long and no longer.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from benchserver.environment.memory import MemoryWatch, ServerMemory, peak_bytes
from benchserver.environment.reading import not_known
from benchserver.environment.usage import load_average
from benchserver.errors import one_line
from benchserver.report.record import Asked, Readings, record_sections
from benchserver.result import RunResult

_READ_WITHIN_S = 2.0
_KEEP_S = 0.8
"""For reports and the last lines, of the three seconds that follow a signal."""

_NOT_WATCHED = ServerMemory(unseen="no run was made")


class Recorder:
    """Makes the record of one run."""

    def __init__(self, words: Sequence[str]) -> None:
        """The run begins now, and was asked for in these words."""
        self._asked = Asked(
            # As they were typed, also where the locale has ASCII alone.
            words=tuple(os.fsencode(word).decode("utf-8", "replace") for word in words),
            began_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            load_average=load_average(),
        )
        self._watch: MemoryWatch | None = None

    @contextlib.contextmanager
    def watching(self, rpc_url: str) -> Iterator[None]:
        """Look at the memory of the server while this lasts, if it is on this host."""
        self._watch = MemoryWatch(rpc_url)
        with self._watch.watching():
            yield

    def completed(self, result: RunResult, seconds_left: Callable[[float], float]) -> RunResult:
        """Return the result with its record; `seconds_left` says how long reading may take."""
        within_s = max(0.0, seconds_left(_READ_WITHIN_S + _KEEP_S) - _KEEP_S)
        late = not_known(f"reading it took more than {within_s:.1f} s")
        found: dict[str, dict[str, Any]] = {
            "software": {"unread": late},
            "machine": {"unread": late},
        }

        def read() -> None:
            # Loaded here: a run does not wait for what lists packages.
            from benchserver.environment.machine import machine_document
            from benchserver.environment.software import software_document

            found["machine"] = _read(lambda: machine_document(self._asked.load_average))
            found["software"] = _read(lambda: software_document(max(within_s / 2, 0.1)))

        reader = threading.Thread(target=read, name="record", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread is left: then nothing is read
            reader.start()
            reader.join(within_s)
        readings = Readings(
            software=found["software"],
            machine=found["machine"],
            own_peak_bytes=peak_bytes(),
            server_memory=_NOT_WATCHED if self._watch is None else self._watch.seen,
        )
        sections = record_sections(result, self._asked, readings)
        return replace(result, sections=(*sections, *result.sections))


def _read(document: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return document()
    except Exception as error:  # noqa: BLE001  whatever it is, a run is reported without it
        return {"unread": not_known(f"{type(error).__name__}: {one_line(error, 200)}")}
