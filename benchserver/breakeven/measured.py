"""What the JSON report of a run says about a hit: its payload, tokens, calls and rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchserver.errors import UsageError, one_line
from benchserver.geometry import Geometry
from benchserver.jsonfile import read_json_file
from shapespec import SpecError, parse_shape_spec, token_bytes

_FORMAT = 1
_BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The hit of a run: all ranks of an engine together, which retrieve at the same time."""

    path: str
    payload_bytes: float
    tokens: int
    lookup_s: float
    retrieve_bytes_per_s: float
    passed: bool


def read_run(path: str) -> Measured:
    """Return what a report has measured; UsageError if it is none of ours, or has no hit."""
    named = f"--run {one_line(path, 120) or ascii(path)}"
    document = read_json_file(named, path)
    try:
        return _measured(path, document)
    except (KeyError, TypeError, ValueError, AttributeError, SpecError) as error:
        reason = f"no {error.args[0]}" if isinstance(error, KeyError) else one_line(error, 200)
        raise UsageError(
            f"{named}: not the JSON report of a run that retrieved something ({reason}); make one "
            "with `bench-server --json PATH` or `bench-server load --json PATH`"
        ) from error


def _measured(path: str, document: Mapping[str, Any]) -> Measured:
    """Return the figures; KeyError, TypeError, ValueError for what is not in the report."""
    if document["format"] != _FORMAT:
        raise ValueError(f"format {one_line(document['format'], 40)}, expected {_FORMAT}")
    config, latency = document["config"], document["latency"]
    ranks = _whole(config, "tp_size")
    rate = _positive(document["throughput_gb_per_s"], "RETRIEVE") * _BYTES_PER_GB
    of_load = "load" in document
    tokens = _mean_hit(document, ranks) if of_load else _whole_chunks(document)
    lookup = latency["LOOKUP" if of_load else "LOOKUP warm"]
    return Measured(
        path=path,
        payload_bytes=tokens * token_bytes(parse_shape_spec(config["spec"])) * ranks,
        tokens=tokens,
        lookup_s=_positive(lookup, "p50_ms") / 1e3,
        retrieve_bytes_per_s=rate * ranks,
        passed=document["verdict"] == "valid",
    )


def _whole_chunks(document: Mapping[str, Any]) -> int:
    """Return the tokens of a sequence of the baseline, all of which are retrieved."""
    geometry = Geometry(
        spec=parse_shape_spec(document["config"]["spec"]),
        chunk_tokens=_whole(document["server"], "chunk_tokens"),
        num_tokens=_whole(document["config"], "num_tokens"),
    )
    if not geometry.chunks:
        raise ValueError("its sequences fill no chunk")
    return geometry.end


def _mean_hit(document: Mapping[str, Any], ranks: int) -> int:
    """Return the tokens that a request of a load has retrieved, in the mean of those that did."""
    retrieved = _whole(document["load"]["bytes"], "retrieved")
    hits = _whole(document["latency"]["RETRIEVE"], "count") / ranks
    return round(
        retrieved / hits / ranks / token_bytes(parse_shape_spec(document["config"]["spec"]))
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
