"""Faults of bytes: of what RETRIEVE brings, and of what STORE takes."""

from __future__ import annotations

from benchserver.selftest.case import INLINE, SHM, Case
from benchserver.selftest.cases.sharing import LOST_CHUNKS, SOON, TP2

_FP8 = ("--kvcache-shape-spec", "(2,112,16,2,8):float8_e4m3fn:3")

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
        options=TP2,
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
        options=TP2,
    ),
    Case(
        switch="rank_mixup",
        checks=("content",),
        words=("rank=1", "the page of seq 0 chunk 0 rank 0"),
        options=TP2,
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
        words=(*LOST_CHUNKS, "hit 0/2 chunks, expected 2/2"),
        options=SOON,
    ),
    Case(
        switch="drop_store:rank=1",
        checks=("visibility", "warm_lookup"),
        words=(*LOST_CHUNKS, "hit 0/2 chunks, expected 2/2"),
        options=(*SOON, *TP2),
    ),
    Case(
        switch="drop_store",
        checks=("visibility",),
        words=LOST_CHUNKS,
        options=SOON,
        transport=SHM,
    ),
    Case(
        switch="drop_store",
        checks=("visibility",),
        words=LOST_CHUNKS,
        options=SOON,
        transport=INLINE,
    ),
    Case(
        switch="stuck_store",
        checks=("residue", "visibility"),
        words=("write-locked objects more than before the run",),
        options=SOON,
    ),
    Case(
        switch="early_ack:1500ms",
        checks=("visibility",),
        words=LOST_CHUNKS,
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
        options=(*SOON, "--num-tokens", "768"),
    ),
    Case(switch="full_l1", checks=("visibility",), words=LOST_CHUNKS, options=SOON),
    Case(switch="full_l1", checks=("store",), options=SOON, transport=SHM),
    Case(
        switch="clear_between",
        checks=("visibility", "warm_lookup"),
        words=LOST_CHUNKS,
        options=SOON,
    ),
)
