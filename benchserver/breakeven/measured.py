"""What the JSON report of a run says about a hit: its payload, tokens, calls and rate."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.errors import UsageError, one_line, os_reason
from benchserver.geometry import Geometry
from shapespec import SpecError, parse_shape_spec

_MAX_BYTES = 64 << 20
_FORMAT = 1
_BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The hit of a run: all its ranks together, which retrieve at the same time."""

    path: str
    payload_bytes: float
    tokens: int
    lookup_s: float
    retrieve_bytes_per_s: float
    passed: bool


def read_run(path: str) -> Measured:
    """Return what a report has measured; UsageError if it is none of ours, or has no hit."""
    named = f"--run {one_line(path, 120) or ascii(path)}"
    document = _document(named, path)
    try:
        return _measured(path, document)
    except (KeyError, TypeError, ValueError, AttributeError, SpecError) as error:
        reason = f"no {error.args[0]}" if isinstance(error, KeyError) else one_line(error, 200)
        raise UsageError(
            f"{named}: not the JSON report of a run that retrieved something ({reason}); make one "
            "with `bench-server --json PATH`"
        ) from error


def _document(named: str, path: str) -> Any:
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{named}: not a file")
        if about.st_size > _MAX_BYTES:
            raise UsageError(f"{named}: longer than {_MAX_BYTES} bytes, so not our report")
        with open(path, "rb") as file:
            return json.loads(file.read(_MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{named}: {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{named}: not JSON: {one_line(error, 200)}") from error


def _measured(path: str, document: Mapping[str, Any]) -> Measured:
    """Return the figures; KeyError, TypeError, ValueError for what is not in the report."""
    if document["format"] != _FORMAT:
        raise ValueError(f"format {one_line(document['format'], 40)}, expected {_FORMAT}")
    config = document["config"]
    geometry = Geometry(
        spec=parse_shape_spec(config["spec"]),
        chunk_tokens=_whole(document["server"], "chunk_tokens"),
        num_tokens=_whole(config, "num_tokens"),
    )
    ranks = _whole(config, "tp_size")
    rate = _positive(document["throughput_gb_per_s"], "RETRIEVE") * _BYTES_PER_GB
    if not geometry.chunks:
        raise ValueError("its sequences fill no chunk")
    return Measured(
        path=path,
        payload_bytes=geometry.nbytes * ranks,
        tokens=geometry.end,
        lookup_s=_positive(document["latency"]["LOOKUP warm"], "p50_ms") / 1e3,
        retrieve_bytes_per_s=rate * ranks,
        passed=document["verdict"] == "valid",
    )


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values[name]
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {one_line(value, 40)}, expected a whole number")
    return value


def _positive(values: Mapping[str, Any], name: str) -> float:
    value = values[name]
    if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {one_line(value, 40)}, expected a number above 0")
    return float(value)
