"""A TOML file that a user wrote: read whole, or refused in one line."""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import Any

from benchserver.errors import UsageError, one_line, os_reason

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

_MAX_BYTES = 1 << 20
_WRITER_WITHIN_MS = 3000


def _content(path: str) -> bytes:
    """Return what is there; a pipe, as shells make for `<(...)`, must have a writer soon."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            if not waiting.poll(_WRITER_WITHIN_MS):
                raise UsageError(f"{path}: nobody writes to this pipe")
            os.set_blocking(descriptor, True)
        return file.read(_MAX_BYTES + 1)


def read_toml(path: str) -> dict[str, Any]:
    """Return the document of a file; UsageError if it is none."""
    try:
        text = _content(path)
        if len(text) > _MAX_BYTES:
            raise UsageError(f"{path} is longer than {_MAX_BYTES} bytes")
        document: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:  # also from integers of thousands of digits
        raise UsageError(f"{path} is not TOML: {one_line(error)}") from error
    return document
