"""The runs of the self-test, and what must come of each."""

from __future__ import annotations

from functools import partial

from benchserver.selftest.case import FOLDER, INLINE, SHM, Case

_TP2 = ("--tp-size", "2")
_SHORT = ("--timeout", "1")
"""A deadline that makes faults of silence quick to find."""

_ONE = (*_SHORT, "--end", "1")
_SOON = ("--visible-within", "0.2")
_LOST_CHUNKS = ("never became visible",)
_CHUNK_OF_ONE = ("--chunk-size", "1")
_TINY_CHUNKS = ("--kvcache-shape-spec", "(2,2304,1,1,8):float16:1", "--num-tokens", "1024")
"""Among so many tokens some come twice: equal chunks, behind other prefixes."""

_FP8 = ("--kvcache-shape-spec", "(2,112,16,2,8):float8_e4m3fn:3")
_WARM = ("--expect-warm",)
_HIT_NONE = ("cold LOOKUP hit 0/2 chunks, expected 2/2",)
_FILES = ("--l2", f"fs://{FOLDER}/tier")
_from_l2 = partial(
    Case,
    serve=("--l2", "mock://1/"),
    before=(),
    from_l2=True,
    options=_WARM,
    note="L2",
)
"""A run that expects what one before it has stored, and that must come from L2."""

_TENANT_A, _TENANT_B = ("--cache-salt", "tenant-a"), ("--cache-salt", "tenant-b")

CONTROLS = (
    Case(switch=""),
    Case(switch="", transport=SHM),
    Case(switch="", transport=INLINE),
    Case(switch="", options=_TENANT_B, before=_TENANT_A, note="two tenants"),
    Case(switch="", options=_TINY_CHUNKS, serve=_CHUNK_OF_ONE, note="chunks of a token"),
    _from_l2(switch=""),
    _from_l2(switch="", serve=_FILES, note="files"),
)

HARMLESS = (
    Case(switch="delay"),
    Case(switch="delay", transport=SHM),
    Case(switch="slow_prefetch"),
    Case(switch="early_ack"),
    Case(switch="early_ack", transport=SHM),
    Case(switch="late_reply:STORE,300ms"),
    Case(switch="freeze:LOOKUP,300ms@1"),
    _from_l2(switch="tier_stall"),
)

DELIVERIES = (
    Case(
        switch="noop_retrieve",
        checks=("content",),
        words=("untouched by RETRIEVE", "poison"),
    ),
    Case(
        switch="half_retrieve",
        checks=("content",),
        words=("chunk 1", "poison: nothing was written"),
    ),
    Case(
        switch="flip_byte:layer=1,rank=1@3",
        checks=("content",),
        words=("seq=1 rank=1", "1 of 192 pages wrong", "layer 1"),
        options=_TP2,
    ),
    Case(
        switch="flip_byte:layer=1,chunk=0",
        checks=("content",),
        words=("1 of 192 pages wrong", "chunk 0", "layer 1"),
        transport=SHM,
    ),
    Case(
        switch="flip_byte@p=0.9,seed=1",
        checks=("content",),
        words=("1 of 192 pages wrong", "layer 2"),
        transport=INLINE,
    ),
    Case(switch="swap_chunks", checks=("content",), words=("chunk 1 rank 0 layer 0",)),
    Case(
        switch="swap_chunks",
        checks=("content",),
        words=("chunk 1 rank 0 layer 0",),
        transport=SHM,
    ),
    Case(
        switch="swap_chunks",
        checks=("content",),
        words=("chunk 1 rank 0 layer 0",),
        transport=INLINE,
    ),
    Case(switch="layer_mixup", checks=("content",), words=("chunk 0 rank 0 layer 1",)),
    Case(
        switch="layer_mixup",
        checks=("content",),
        words=("chunk 0 rank 0 layer 1",),
        transport=SHM,
    ),
    Case(switch="plane_mixup", checks=("content",), words=("plane V",)),
    Case(
        switch="rank_mixup",
        checks=("content",),
        words=("rank=1", "the page of seq 0 chunk 0 rank 0"),
        options=_TP2,
    ),
    Case(
        switch="rank_mixup",
        checks=("content",),
        words=("rank=1", "the page of seq 0 chunk 0 rank 0"),
        options=_TP2,
        transport=SHM,
    ),
    Case(
        switch="stale_data",
        checks=("content",),
        words=("seq=1 rank=0", "the page of seq 0 chunk 0"),
    ),
    Case(
        switch="stale_data",
        checks=("content",),
        words=("seq=1 rank=0", "the page of seq 0 chunk 0"),
        transport=SHM,
    ),
    Case(switch="canary_overwrite", checks=("canaries",), words=("CANARY OVERWRITTEN, 1 of",)),
    Case(switch="source_overwrite", checks=("source",), words=("leg source",)),
    Case(
        switch="source_overwrite",
        checks=("source",),
        words=("leg source",),
        options=("--no-http",),
        note="no HTTP",
    ),
    Case(
        switch="ignored_skip",
        checks=("partial",),
        words=("SKIPPED BLOCKS OVERWRITTEN", "the page of seq 0 chunk 0"),
    ),
    Case(switch="refuse_retrieve", checks=("retrieve",), words=("RETRIEVE answered False",)),
    Case(
        switch="refuse_retrieve",
        checks=("retrieve",),
        words=("engines give fp8 KV as uint8, not as float8_e4m3fn",),
        options=_FP8,
        note="fp8",
    ),
    Case(
        switch="refuse_retrieve",
        checks=("retrieve",),
        words=("PREPARE_RETRIEVE answered success=false",),
        transport=SHM,
    ),
)

STORES = (
    Case(switch="refuse_store", checks=("store",), words=("STORE answered False",)),
    Case(
        switch="refuse_store",
        checks=("store",),
        words=("COMMIT_STORE answered False",),
        transport=SHM,
    ),
    Case(
        switch="drop_store",
        checks=("visibility", "warm_lookup"),
        words=(*_LOST_CHUNKS, "hit 0/2 chunks, expected 2/2"),
        options=_SOON,
    ),
    Case(
        switch="drop_store:rank=1",
        checks=("visibility", "warm_lookup"),
        words=(*_LOST_CHUNKS, "hit 0/2 chunks, expected 2/2"),
        options=(*_SOON, *_TP2),
    ),
    Case(
        switch="drop_store",
        checks=("visibility",),
        words=_LOST_CHUNKS,
        options=_SOON,
        transport=SHM,
    ),
    Case(
        switch="drop_store",
        checks=("visibility",),
        words=_LOST_CHUNKS,
        options=_SOON,
        transport=INLINE,
    ),
    Case(
        switch="stuck_store",
        checks=("residue", "visibility"),
        words=("write-locked objects more than before the run",),
        options=_SOON,
    ),
    Case(
        switch="early_ack:1500ms",
        checks=("visibility",),
        words=_LOST_CHUNKS,
        options=("--visible-within", "0.2", "--end", "1"),
    ),
    Case(
        switch="late_read",
        checks=("content",),
        words=("seq=0", "leg destination", "as overwritten after STORE was acknowledged"),
    ),
    Case(
        switch="late_read@3",
        checks=("content",),
        words=("seq=2", "as overwritten after STORE was acknowledged"),
        options=("--end", "3"),
        note="one that is not the first",
    ),
    Case(
        switch="lost_chunk",
        checks=("visibility", "warm_lookup"),
        words=("hit 1/3 chunks, expected 3/3",),
        options=(*_SOON, "--num-tokens", "768"),
    ),
    Case(switch="full_l1", checks=("visibility",), words=_LOST_CHUNKS, options=_SOON),
    Case(switch="full_l1", checks=("store",), options=_SOON, transport=SHM),
    Case(
        switch="clear_between",
        checks=("visibility", "warm_lookup"),
        words=_LOST_CHUNKS,
        options=_SOON,
    ),
)

LOOKUPS = (
    Case(
        switch="miscount_up",
        checks=("warm_lookup",),
        words=("warm LOOKUP hit 3/2 chunks, expected 2/2",),
    ),
    Case(
        switch="miscount_down",
        checks=("warm_lookup", "visibility"),
        words=("warm LOOKUP hit 1/2 chunks, expected 2/2",),
        options=_SOON,
    ),
    Case(
        switch="miscount_cold",
        checks=("cold_lookup",),
        words=("cold LOOKUP hit 1/2 chunks, expected 0/2",),
    ),
    Case(
        switch="hole_counted",
        checks=("retrieve",),
        words=("RETRIEVE answered False",),
        options=("--num-tokens", "768"),
    ),
    Case(
        switch="ignored_salt",
        checks=("isolation",),
        words=("LOOKUP under another cache salt hit 2/2 chunks, expected 0/2",),
    ),
    Case(
        switch="ignored_model",
        checks=("isolation",),
        words=("LOOKUP under another model name hit 2/2 chunks, expected 0/2",),
    ),
    Case(
        switch="ignored_end",
        checks=("bounds",),
        words=("ends before the stored end hit 2/2 chunks, expected 1/2",),
    ),
    Case(
        switch="ignored_prefix",
        checks=("content",),
        words=("seq=0", "CHECKSUM MISMATCH, leg destination", "the page of seq 0 chunk"),
    ),
    Case(
        switch="ignored_prefix",
        checks=("content",),
        words=("seq=1, equal chunks", "CHECKSUM MISMATCH, leg destination"),
        options=("--start", "1", "--end", "3"),
        note="from sequence 1 on",
    ),
    Case(
        switch="slow_prefetch:3s",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        options=_ONE,
    ),
    Case(
        switch="stuck_prefetch",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        options=_ONE,
    ),
)

LEAKS = (
    Case(
        switch="leak_lock",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
    ),
    Case(
        switch="leak_lock",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
        transport=SHM,
    ),
    Case(switch="leak_session", checks=("residue",), words=("sessions more than before the run",)),
    Case(
        switch="leak_registration",
        checks=("residue",),
        words=("the server still holds registrations of instance",),
    ),
    Case(
        switch="leak_registration",
        checks=("residue",),
        words=("the server still holds registrations of instance",),
        transport=SHM,
    ),
    Case(
        switch="leak_read",
        checks=("residue",),
        words=("read-locked objects more than before the run",),
        transport=SHM,
    ),
)

REPLIES = (
    Case(
        switch="lost_reply@1",
        checks=("retrieve",),
        words=("RETRIEVE: no answer within 1 s",),
        options=_SHORT,
    ),
    Case(
        switch="lost_reply:STORE@1",
        checks=("store",),
        words=("STORE: no answer within 1 s",),
        options=_SHORT,
    ),
    Case(
        switch="lost_reply:COMMIT_STORE@1",
        checks=("store",),
        words=("no answer within 1 s",),
        options=_SHORT,
        transport=SHM,
    ),
    Case(
        switch="lost_reply:UNREGISTER_KV_CACHE",
        checks=("replies",),
        words=("UNREGISTER_KV_CACHE: no answer within 1 s", "is unknown"),
        options=_SHORT,
    ),
    Case(
        switch="lost_request:UNREGISTER_KV_CACHE",
        checks=("replies",),
        words=("UNREGISTER_KV_CACHE: no answer within 1 s", "is unknown"),
        options=(*_SHORT, "--no-http"),
        note="no HTTP",
    ),
    Case(
        switch="lost_request@2",
        checks=("partial",),
        words=("seq=0", "RETRIEVE without the first", "no answer within 1 s"),
        options=_SHORT,
    ),
    Case(
        switch="lost_request@3",
        checks=("retrieve",),
        words=("seq=1", "RETRIEVE: no answer within 1 s"),
        options=_SHORT,
    ),
    Case(
        switch="lost_request:ANY@9+",
        checks=("run",),
        words=("its HTTP API still answers, so its RPC thread is dead or stuck",),
        options=_SHORT,
    ),
    Case(
        switch="late_reply:RETRIEVE,1150ms@1",
        checks=("replies", "retrieve"),
        words=("late reply: RETRIEVE",),
        options=(*_SHORT, "--interval", "0.6"),
    ),
    Case(
        switch="duplicate_reply",
        checks=("replies",),
        words=("duplicate reply to RETRIEVE",),
    ),
    Case(
        switch="duplicate_reply:UNREGISTER_KV_CACHE",
        checks=("replies",),
        words=("duplicate reply to UNREGISTER_KV_CACHE",),
    ),
    Case(
        switch="garbled_reply",
        checks=("replies", "retrieve"),
        words=("malformed reply", "retrieve result"),
    ),
    Case(switch="cut_reply@1", checks=("replies",), words=("malformed reply",), options=_SHORT),
    Case(
        switch="wrong_op",
        checks=("replies", "retrieve"),
        words=("malformed reply", "is for operation"),
    ),
    Case(
        switch="foreign_uid@1",
        checks=("replies", "retrieve"),
        words=("unknown reply", "was never sent on this connection"),
        options=_SHORT,
    ),
    Case(
        switch="unknown_uid",
        checks=("replies",),
        words=("unknown reply", "was never sent on this connection"),
    ),
)

PLANS = (
    Case(
        switch="slot_out_of_pool",
        checks=("retrieve",),
        words=("within a pool of",),
        transport=SHM,
    ),
    Case(
        switch="slot_missing",
        checks=("retrieve",),
        words=("1 chunks came, 2 were asked for",),
        transport=SHM,
    ),
    Case(
        switch="inline_garbled",
        checks=("retrieve",),
        words=("RETRIEVE",),
        transport=INLINE,
    ),
    Case(switch="inline_cut", checks=("retrieve",), words=("RETRIEVE",), transport=INLINE),
)

HTTP = (
    Case(switch="digest_lies", checks=("digests",), words=("leg source, chunk 0",)),
    Case(
        switch="digest_hangs",
        checks=("digests",),
        words=("/cache/checksums: no answer within 1 s",),
        options=_ONE,
    ),
    Case(switch="digest_500", checks=("digests",), words=("HTTP 500", "disk on fire")),
    Case(switch="digest_half_json", checks=("digests",), words=("are not JSON",)),
    Case(switch="digest_cut", checks=("digests",), words=("ClientPayloadError",)),
    Case(
        switch="status_lies",
        checks=("residue",),
        words=("sessions more than before the run",),
    ),
    Case(
        switch="unhealthy",
        checks=("health",),
        words=("before the run, the server is not well", "storage_manager (is_healthy false)"),
    ),
    Case(
        switch="dead_thread",
        checks=("health",),
        words=("before the run", "l1_eviction_controller (thread_alive false)"),
    ),
    Case(
        switch="dead_thread@3+",
        checks=("health",),
        words=("after the run", "l1_eviction_controller (thread_alive false)"),
    ),
    Case(switch="status_500", checks=("residue",), words=("HTTP 500",)),
)

TIERS = (
    _from_l2(switch="tier_read_error", checks=("cold_lookup",), words=_HIT_NONE),
    _from_l2(switch="tier_short_read", checks=("cold_lookup",), words=_HIT_NONE),
    _from_l2(
        switch="tier_short_read@2",
        checks=("cold_lookup",),
        words=("cold LOOKUP hit 1/2 chunks, expected 2/2",),
        serve=_FILES,
        note="files",
    ),
    _from_l2(switch="tier_write_error", checks=("cold_lookup",), words=_HIT_NONE),
    _from_l2(
        switch="tier_enospc",
        checks=("cold_lookup",),
        words=_HIT_NONE,
        serve=_FILES,
        note="files",
    ),
    _from_l2(
        switch="tier_stall:3s@2+",
        checks=("cold_lookup",),
        words=("the prefetch was still running after 1 s",),
        before=("--end", "1"),
        options=(*_ONE, *_WARM),
    ),
    _from_l2(switch="tier_lies", checks=("cold_lookup",), words=_HIT_NONE),
    _from_l2(switch="tier_corrupt@2", checks=("content",), words=("1 of 192 pages", "chunk 1")),
    _from_l2(
        switch="tier_corrupt",
        checks=("content",),
        words=("2 of 192 pages wrong",),
        transport=SHM,
    ),
    _from_l2(
        switch="tier_empty_read",
        checks=("content",),
        words=("192 of 192 pages wrong", "(zeros)"),
    ),
)

LIVENESS = (
    Case(
        switch="freeze@1",
        checks=("retrieve",),
        words=("RETRIEVE: no answer within 1 s",),
        options=_SHORT,
    ),
    Case(switch="crash:REGISTER_KV_CACHE", checks=("run",), words=("was lost",)),
    Case(switch="crash:LOOKUP,arrived", checks=("run", "cold_lookup"), words=("LOOKUP",)),
    Case(switch="crash:STORE", checks=("run", "store"), words=("STORE",)),
    Case(switch="crash:STORE,replied", checks=("run",), words=("was lost",)),
    Case(switch="crash:RETRIEVE@3", checks=("run", "retrieve"), words=("RETRIEVE",)),
)

CASES: tuple[Case, ...] = (
    *CONTROLS,
    *HARMLESS,
    *DELIVERIES,
    *STORES,
    *LOOKUPS,
    *LEAKS,
    *REPLIES,
    *PLANS,
    *HTTP,
    *TIERS,
    *LIVENESS,
)
