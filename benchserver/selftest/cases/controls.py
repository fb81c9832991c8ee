"""Runs that everything must be proven in: without a fault, or with a harmless one."""

from __future__ import annotations

from benchserver.selftest.case import INLINE, SHM, Case
from benchserver.selftest.cases.sharing import FILES, from_l2

_TENANT_A, _TENANT_B = ("--cache-salt", "tenant-a"), ("--cache-salt", "tenant-b")
_CHUNK_OF_ONE = ("--chunk-size", "1")
_TINY_CHUNKS = ("--kvcache-shape-spec", "(2,2304,1,1,8):float16:1", "--num-tokens", "1024")
"""Among so many tokens some come twice: equal chunks, behind other prefixes."""

CONTROLS = (
    Case(switch=""),
    Case(switch="", transport=SHM),
    Case(switch="", transport=INLINE),
    Case(switch="", options=_TENANT_B, before=_TENANT_A, note="two tenants"),
    Case(switch="", options=_TINY_CHUNKS, serve=_CHUNK_OF_ONE, note="chunks of a token"),
    from_l2(switch=""),
    from_l2(switch="", serve=FILES, note="files"),
)

HARMLESS = (
    Case(switch="delay"),
    Case(switch="delay", transport=SHM),
    Case(switch="slow"),
    Case(switch="slow_prefetch"),
    Case(switch="early_ack"),
    Case(switch="early_ack", transport=SHM),
    Case(switch="late_reply:STORE,300ms"),
    Case(switch="freeze:LOOKUP,300ms@1"),
    from_l2(switch="tier_stall"),
)
