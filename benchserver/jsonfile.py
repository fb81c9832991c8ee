"""A JSON document out of a file that somebody names: what is none is said in one line."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from benchserver.errors import UsageError, one_line, os_reason

MOST_BYTES = 64 << 20
"""Reports are smaller; who names a disk image is told so before it is read."""


def read_json_file(named: str, path: str) -> Any:
    """Return what a file holds; UsageError, which begins with `named`, if it holds no JSON."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{named}: not a file")
        if about.st_size > MOST_BYTES:
            raise UsageError(f"{named}: longer than {MOST_BYTES} bytes, so not our report")
        with open(path, "rb") as file:
            return json.loads(file.read(MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{named}: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{named}: not JSON: {one_line(error, 200)}") from error
