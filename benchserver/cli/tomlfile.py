"""A TOML file that a user wrote: read whole, or refused in one line."""

from __future__ import annotations

import sys
from typing import Any

from benchserver.errors import UsageError, one_line, os_reason

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

_MAX_BYTES = 1 << 20


def read_toml(path: str) -> dict[str, Any]:
    """Return the document of a file; UsageError if it is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise UsageError(f"{path} is longer than {_MAX_BYTES} bytes")
        document: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:  # also from integers of thousands of digits
        raise UsageError(f"{path} is not TOML: {one_line(error)}") from error
    return document
