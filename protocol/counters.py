"""The counters of `/metrics` that tell how the chunks of one model fare: asked, hit, lost.

The text is Prometheus' format 0.0.4, of which only these lines are read (lmcache_mp_*: 0.5.0 to
0.5.7rc2, bench_embedded_*: the embedded server).  A real server shows a counter from its first
event on, so one that is not there has counted nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

_KNOWN = ("lmcache_mp_", "bench_embedded_")
"""How every line of interest begins; a text without any is not that of an MP server."""

_NAMES = {
    "lmcache_mp_l1_evicted_chunks": "evicted_chunks",
    "lmcache_mp_l1_read_failure_chunks": "unread_chunks",
    "lmcache_mp_l2_prefetch_failure_chunks": "unloaded_chunks",
    "lmcache_mp_lookup_requested_tokens": "asked_tokens",
    "lmcache_mp_lookup_hit_tokens": "hit_tokens",
    "lmcache_mp_lookup_hit_l1_tokens": "hit_l1_tokens",
    "lmcache_mp_lookup_hit_l2_tokens": "hit_l2_tokens",
    "bench_embedded_refused_objects": "dropped_chunks",
    "bench_embedded_evicted_objects": "evicted_chunks",
    "bench_embedded_lookup_tokens": "asked_tokens",
    "bench_embedded_lookup_hit_tokens": "hit_tokens",
}
_ALLOCATIONS = "lmcache_mp_l1_allocation_failure_chunks"
_DURING = {"l1_store": "dropped_chunks", "l2_prefetch": "unloaded_chunks"}
"""What an allocation that failed was for (0.5.6)."""

_LINE = re.compile(
    rf"^({'|'.join([*_NAMES, _ALLOCATIONS])})_total(\{{[^\n]*\}})? ([0-9.eE+]{{1,30}})(?: \d+)?$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(during|model_name)="((?:[^"\\\n]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a server has counted since it started.

    Chunks are those of its own objects: one a KV rank and object group.  `dropped_chunks` had no
    room when they were stored, although STORE answered True; `evicted_chunks` were given up for
    others, of all models together; `unread_chunks` and `unloaded_chunks` were found and then could
    not be read in L1, or not be loaded from L2.  Tokens are those of LOOKUPs.
    """

    dropped_chunks: int = 0
    evicted_chunks: int = 0
    unread_chunks: int = 0
    unloaded_chunks: int = 0
    asked_tokens: int = 0
    hit_tokens: int = 0
    hit_l1_tokens: int = 0
    hit_l2_tokens: int = 0

    def since(self, before: Counters) -> Counters | None:
        """Return what was counted since `before`, or None if the server began anew meanwhile."""
        counted = {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}
        return Counters(**counted) if min(counted.values()) >= 0 else None


def read_counters(text: str, model_name: str) -> Counters | None:
    """Return the counters of one model, and those without a model; None: this tells of none."""
    if not any(line.startswith(_KNOWN) for line in text.splitlines()):
        return None
    counted: dict[str, int] = {}
    for name, labels, number in _LINE.findall(text):
        said = dict(_LABEL.findall(labels))
        field = _NAMES.get(name) or _DURING.get(said.get("during", ""))
        model = said.get("model_name")
        if field and model in (None, _escaped(model_name)):
            counted[field] = counted.get(field, 0) + _whole(number)
    return Counters(**counted)


def _escaped(text: str) -> str:
    """Return a label's value as the format writes it."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _whole(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        return 0
    return int(number) if math.isfinite(number) else 0
