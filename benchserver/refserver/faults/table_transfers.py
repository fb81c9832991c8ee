"""The table, first part: faults of the bytes that RETRIEVE restores, and of STORE."""

from __future__ import annotations

from benchserver.clock import NS_PER_MS
from benchserver.refserver.faults import deliveries, redirects, stores, transfers
from benchserver.refserver.faults.fault import Fault, after
from benchserver.refserver.faults.pages import is_done
from benchserver.refserver.faults.settings import Settings
from protocol.ops import Op

_REFUSE = after(transfers.refuse, is_done)

DELIVERIES = (
    Fault(
        name="noop_retrieve",
        meaning="RETRIEVE is acknowledged and copies nothing",
        calls={Op.RETRIEVE: transfers.restoring(lambda count: 0)},
        params=("rank",),
    ),
    Fault(
        name="half_retrieve",
        meaning="RETRIEVE restores the first half of the chunks only",
        calls={Op.RETRIEVE: transfers.restoring(lambda count: count // 2)},
        params=("rank",),
    ),
    Fault(
        name="flip_byte",
        meaning="one bit of what RETRIEVE restores is wrong",
        calls=deliveries.delivery(deliveries.flip_byte),
        params=("layer", "rank", "chunk"),
    ),
    Fault(
        name="swap_chunks",
        meaning="RETRIEVE swaps the first and the last chunk",
        calls=deliveries.delivery(deliveries.swap_chunks),
        params=("rank",),
    ),
    Fault(
        name="layer_mixup",
        meaning="RETRIEVE swaps two layers",
        calls=deliveries.delivery(deliveries.mix_layers),
        params=("rank",),
    ),
    Fault(
        name="plane_mixup",
        meaning="RETRIEVE swaps K and V",
        calls=deliveries.delivery(deliveries.mix_planes),
        params=("rank",),
    ),
    Fault(
        name="rank_mixup",
        meaning="every other rank gets the bytes of rank 0",
        calls=redirects.redirected(redirects.of_first_rank),
    ),
    Fault(
        name="stale_data",
        meaning="RETRIEVE restores the sequence that was stored before",
        calls=redirects.redirected(redirects.of_sequence_before),
        params=("rank",),
    ),
    Fault(
        name="canary_overwrite",
        meaning="RETRIEVE writes into the block behind the destination",
        calls={Op.RETRIEVE: transfers.overwrite_canary},
        params=("rank",),
    ),
    Fault(
        name="source_overwrite",
        meaning="STORE alters a block that it reads",
        calls={Op.STORE: transfers.overwrite_source},
        params=("rank",),
    ),
    Fault(
        name="ignored_skip",
        meaning="RETRIEVE also writes the tokens that it was told to skip",
        calls={Op.RETRIEVE: transfers.ignore_skip},
        params=("rank",),
    ),
    Fault(
        name="refuse_retrieve",
        meaning="RETRIEVE is done and answers False",
        calls={Op.RETRIEVE: _REFUSE, Op.PREPARE_RETRIEVE: _REFUSE},
        params=("rank",),
    ),
)

STORES = (
    Fault(
        name="refuse_store",
        meaning="STORE is done and answers False",
        calls={Op.STORE: _REFUSE, Op.COMMIT_STORE: _REFUSE},
        params=("rank",),
    ),
    Fault(
        name="drop_store",
        meaning="STORE is acknowledged and stores nothing",
        calls={Op.STORE: stores.drop_store, Op.COMMIT_STORE: stores.drop_commit},
        params=("rank",),
    ),
    Fault(
        name="stuck_store",
        meaning="STORE is acknowledged, and stays reserved and invisible for ever",
        calls={Op.STORE: stores.stick_store, Op.COMMIT_STORE: stores.drop_commit},
        params=("rank",),
    ),
    Fault(
        name="early_ack",
        meaning="STORE is acknowledged some time before LOOKUP finds its chunks",
        calls=stores.acknowledged_early(),
        params=("delay",),
        defaults=Settings(delay_ns=300 * NS_PER_MS),
        harmless=True,
    ),
    Fault(
        # Of engine_driven clients no server reads the source: they copy it themselves, before
        # COMMIT_STORE.
        name="late_read",
        meaning="STORE is acknowledged first, and its source is read some time later",
        calls={Op.STORE: stores.read_late},
        params=("delay", "rank"),
        defaults=Settings(delay_ns=100 * NS_PER_MS),
    ),
    Fault(
        name="lost_chunk",
        meaning="STORE is acknowledged and leaves out the middle chunk",
        calls={Op.STORE: stores.leave_out_middle},
        params=("rank",),
    ),
    Fault(
        name="full_l1",
        meaning="all memory is taken: STORE is acknowledged, and there is no room",
        calls={
            Op.STORE: stores.fill_l1,
            Op.PREPARE_STORE: stores.fill_l1,
            Op.COMMIT_STORE: stores.fill_l1,
        },
    ),
    Fault(
        name="clear_between",
        meaning="the cache is cleared before every LOOKUP that follows a STORE",
        calls=stores.cleared_between(),
    ),
)
