"""The histograms of a run as an HdrHistogram log, which the usual tools read and plot.

Version 1.3 of the log, V2 compressed histograms: one for each series of latencies, tagged with its
name.  All values are microseconds; the column of the largest value is in ms, as the tools have it.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from benchserver.result import RunResult

_NOT_IN_A_TAG = re.compile(r"[,\s]+")


def hdr_log(result: RunResult) -> bytes:
    """Return the log: a line for each series that anything was counted in."""
    start_s = _started(result).timestamp()
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch), {_started(result).isoformat()}]",
        "#[Values are microseconds; each line covers the whole run]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for series, latencies in result.measures.latencies.items():
        if (summary := latencies.summary()) is not None:
            tag = _NOT_IN_A_TAG.sub("_", series.name)
            figures = f"{start_s:.3f},{result.wall_ns / 1e9:.3f},{summary.max_ms:.3f}"
            lines.append(f"Tag={tag},{figures},{latencies.encoded().decode()}")
    return ("\n".join(lines) + "\n").encode()


def _started(result: RunResult) -> datetime:
    """Return when the run began, as its record says; the epoch if it has none."""
    for section in result.sections:
        if section.key == "run":
            return datetime.fromisoformat(section.document["started_at"])
    return datetime.fromtimestamp(0, timezone.utc)
