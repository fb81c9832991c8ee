"""The counters of `/metrics` that say why a store or a lookup found less than it should.

The text is Prometheus' format 0.0.4, of which only these lines are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

FAILURES: Mapping[str, str] = {
    "lmcache_mp_l1_allocation_failure": "allocations of chunks in L1 failed",
    "lmcache_mp_l1_read_failure": "reads of chunks from L1 failed",
    "lmcache_mp_l2_prefetch_failure": "chunks could not be loaded from L2",
    "bench_embedded_refused_reservations": "stores found no room in L1",
}
"""What a counter counts, by the beginning of its name (0.4.7 to 0.5.6, and the embedded server)."""

_LINE = re.compile(
    rf"^({'|'.join(FAILURES)})[a-z_]*_total(?:\{{[^\n]*\}})? ([0-9.eE+]{{1,30}})(?: \d+)?$",
    re.MULTILINE,
)


def read_failures(text: str) -> dict[str, int]:
    """Return what has been counted so far, all labels together, by the keys of FAILURES."""
    counted: dict[str, int] = {}
    for match in _LINE.finditer(text):
        try:
            number = float(match.group(2))
        except ValueError:
            continue
        if math.isfinite(number):
            counted[match.group(1)] = counted.get(match.group(1), 0) + int(number)
    return counted
