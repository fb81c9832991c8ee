"""The table of faults: what goes wrong, and which words and checks of ours must say so."""

from __future__ import annotations

from protocol.ops import Op
from tests.mitm import sabotage
from tests.mitm.fault import SHORT, Fault
from tests.mitm.faults_beside import DIGESTS, ENGINE, LEAKS

_TP2 = ("--tp-size", "2")

_TRANSFERS = (
    Fault(name="pass_through", meaning="no fault"),
    Fault(
        name="delay_30ms",
        meaning="every LOOKUP, STORE and RETRIEVE takes 30 ms longer",
        rpc=dict.fromkeys((Op.LOOKUP, Op.STORE, Op.RETRIEVE), sabotage.delay_30ms),
    ),
    Fault(
        name="noop_retrieve",
        meaning="RETRIEVE is acknowledged and copies nothing",
        rpc={Op.RETRIEVE: sabotage.noop_retrieve},
        words=("CHECKSUM MISMATCH, leg destination", "untouched by RETRIEVE", "poison"),
        checks=("content",),
    ),
    Fault(
        name="flip_byte",
        meaning="one bit of the last layer of the last rank's destination is wrong",
        rpc={Op.RETRIEVE: sabotage.flip_byte},
        words=("rank=1: CHECKSUM MISMATCH, leg destination, 1 of", "layer 2"),
        checks=("content",),
        options=_TP2,
    ),
    Fault(
        name="swap_chunks",
        meaning="two chunks are swapped at the destination",
        rpc={Op.RETRIEVE: sabotage.swap_chunks},
        words=("CHECKSUM MISMATCH, leg destination", "chunk 0", "chunk 1 rank 0 layer 0"),
        checks=("content",),
    ),
    Fault(
        name="half_retrieve",
        meaning="RETRIEVE restores the first half of the chunks only",
        rpc={Op.RETRIEVE: sabotage.half_retrieve},
        words=("CHECKSUM MISMATCH, leg destination", "chunk 1", "poison: nothing was written"),
        checks=("content",),
    ),
    Fault(
        name="canary_overwrite",
        meaning="RETRIEVE writes into the block behind the destination",
        rpc={Op.RETRIEVE: sabotage.canary_overwrite},
        words=("CANARY OVERWRITTEN, 1 of", "nobody may write"),
        checks=("canaries",),
    ),
    Fault(
        name="rank_mixup",
        meaning="rank 1 gets the bytes of rank 0",
        rpc={Op.STORE: sabotage.remember_store, Op.RETRIEVE: sabotage.rank_mixup},
        words=("rank=1: CHECKSUM MISMATCH, leg destination", "the page of seq 0 chunk 0 rank 0"),
        checks=("content",),
        options=_TP2,
    ),
    Fault(
        name="stale_data",
        meaning="RETRIEVE restores the sequence before",
        rpc={Op.STORE: sabotage.remember_store, Op.RETRIEVE: sabotage.stale_data},
        words=("seq=1 rank=0: CHECKSUM MISMATCH, leg destination", "the page of seq 0 chunk 0"),
        checks=("content",),
    ),
    Fault(
        name="skip_zeroed",
        meaning="RETRIEVE also writes the tokens that it was told to skip",
        rpc={Op.RETRIEVE: sabotage.skip_zeroed},
        words=("SKIPPED BLOCKS OVERWRITTEN", "expected e5e5", "the page of seq 0 chunk 0"),
        checks=("partial",),
    ),
    Fault(
        name="skip_one_block_more",
        meaning="RETRIEVE skips one block more than it was told",
        rpc={Op.RETRIEVE: sabotage.skip_one_block_more},
        words=("CHECKSUM MISMATCH of the blocks behind them", "poison: nothing was written"),
        checks=("partial",),
    ),
    Fault(
        name="source_overwrite",
        meaning="STORE alters a block that it reads",
        rpc={Op.STORE: sabotage.source_overwrite},
        words=("CHECKSUM MISMATCH, leg source",),
        checks=("source",),
    ),
    Fault(
        name="source_overwrite_no_http",
        meaning="as source_overwrite, without the digest cross-check",
        rpc={Op.STORE: sabotage.source_overwrite},
        words=("leg source",),
        checks=("source",),
        options=("--no-http",),
    ),
    Fault(
        name="refuse_retrieve",
        meaning="RETRIEVE answers False",
        rpc={Op.RETRIEVE: sabotage.refuse_transfer},
        words=("RETRIEVE answered False",),
        checks=("retrieve",),
    ),
    Fault(
        name="refuse_store",
        meaning="STORE answers False",
        rpc={Op.STORE: sabotage.refuse_transfer},
        words=("STORE answered False",),
        checks=("store",),
    ),
    Fault(
        name="drop_store",
        meaning="STORE is acknowledged and stores nothing",
        rpc={Op.STORE: sabotage.drop_store},
        words=("never became visible", "hit 0/2 chunks, expected 2/2"),
        checks=("visibility", "warm_lookup"),
        options=("--visible-within", "0.2"),
    ),
    Fault(
        name="drop_last_rank",
        meaning="rank 1's STORE is acknowledged and stores nothing",
        rpc={Op.STORE: sabotage.drop_last_rank},
        words=("never became visible", "hit 0/2 chunks, expected 2/2"),
        checks=("visibility", "warm_lookup"),
        options=("--visible-within", "0.2", *_TP2),
    ),
    Fault(
        name="clear_between",
        meaning="the cache is cleared between the cold pass and the warm LOOKUP",
        rpc={Op.LOOKUP: sabotage.clear_before_warm},
        words=("never became visible", "hit 0/2 chunks, expected 2/2"),
        checks=("visibility", "warm_lookup"),
        options=("--visible-within", "0.2"),
    ),
    Fault(
        name="kill_server",
        meaning="the server is killed at the first RETRIEVE",
        rpc={Op.RETRIEVE: sabotage.kill_server},
        words=("RETRIEVE: the connection to", "was lost while waiting", "run: the server "),
        checks=("run", "retrieve"),
    ),
)

_REPLIES = (
    Fault(
        name="lose_reply",
        meaning="the first reply to RETRIEVE is lost",
        rpc={Op.RETRIEVE: sabotage.lose_reply},
        words=("RETRIEVE: no answer within 1 s",),
        checks=("retrieve",),
        options=SHORT,
    ),
    Fault(
        name="lose_store_reply",
        meaning="the first reply to STORE is lost",
        rpc={Op.STORE: sabotage.lose_reply},
        words=("STORE: no answer within 1 s",),
        checks=("store",),
        options=SHORT,
    ),
    Fault(
        name="garble_reply",
        meaning="the result of RETRIEVE is noise",
        rpc={Op.RETRIEVE: sabotage.garble_reply},
        words=("malformed reply", "retrieve result"),
        checks=("replies", "retrieve"),
    ),
    Fault(
        name="duplicate_reply",
        meaning="RETRIEVE is answered twice",
        rpc={Op.RETRIEVE: sabotage.duplicate_reply},
        words=("duplicate reply to RETRIEVE",),
        checks=("replies",),
    ),
    Fault(
        name="foreign_uid",
        meaning="a reply comes to a request that was never made",
        rpc={Op.RETRIEVE: sabotage.foreign_uid},
        words=("unknown reply", "was never sent on this connection"),
        checks=("replies",),
    ),
    Fault(
        name="foreign_reply",
        meaning="RETRIEVE is answered with the reply to another operation",
        rpc={Op.RETRIEVE: sabotage.foreign_reply},
        words=("malformed reply", "the reply to retrieve (id 7) is for operation 24"),
        checks=("replies", "retrieve"),
    ),
    Fault(
        name="late_reply",
        meaning="the first reply to RETRIEVE comes after the client's deadline",
        rpc={Op.RETRIEVE: sabotage.late_reply},
        words=("RETRIEVE: no answer within 1 s", "late reply: RETRIEVE"),
        checks=("replies", "retrieve"),
        options=(*SHORT, "--interval", "0.4"),
    ),
    Fault(
        name="miscount_up",
        meaning="the status query counts one hit too many",
        rpc={Op.QUERY_PREFETCH_STATUS: sabotage.one_hit_more},
        words=("warm LOOKUP hit 3/2 chunks, expected 2/2",),
        checks=("warm_lookup",),
    ),
    Fault(
        name="miscount_down",
        meaning="the status query counts one hit too few",
        rpc={Op.QUERY_PREFETCH_STATUS: sabotage.one_hit_less},
        words=("warm LOOKUP hit 1/2 chunks, expected 2/2",),
        checks=("visibility", "warm_lookup"),
        options=("--visible-within", "0.2"),
    ),
    Fault(
        name="miscount_cold",
        meaning="the status query counts a hit where nothing is stored",
        rpc={Op.QUERY_PREFETCH_STATUS: sabotage.hit_on_miss},
        words=("cold LOOKUP hit 1/2 chunks, expected 0/2",),
        checks=("cold_lookup",),
    ),
    Fault(
        name="endless_prefetch",
        meaning="the status query never says that it is done",
        rpc={Op.QUERY_PREFETCH_STATUS: sabotage.endless_prefetch},
        words=("the prefetch was still running after 1 s",),
        checks=("cold_lookup",),
        options=(*SHORT, "--end", "1"),
    ),
)

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*_TRANSFERS, *_REPLIES, *DIGESTS, *LEAKS, *ENGINE)
}
