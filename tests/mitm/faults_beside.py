"""More of the table: the digest API, what is left behind, and engine_driven transfers."""

from __future__ import annotations

from protocol.ops import Op
from tests.mitm import httpproxy, sabotage
from tests.mitm.fault import INLINE, SHM, SHORT, Fault

DIGESTS = (
    Fault(
        name="digest_lies",
        meaning="the digest API answers a wrong digest",
        digests=httpproxy.lie,
        words=("CHECKSUM MISMATCH, leg source, chunk 0",),
        checks=("digests",),
    ),
    Fault(
        name="digest_hangs",
        meaning="the digest API never answers",
        digests=httpproxy.hang,
        words=("/cache/checksums: no answer within 1 s",),
        checks=("digests",),
        options=(*SHORT, "--end", "1"),
    ),
    Fault(
        name="digest_500",
        meaning="the digest API fails",
        digests=httpproxy.error_500,
        words=("/cache/checksums: HTTP 500", "disk on fire"),
        checks=("digests",),
    ),
    Fault(
        name="digest_half_json",
        meaning="the digest API answers half a document",
        digests=httpproxy.half_json,
        words=("/cache/checksums", "are not JSON"),
        checks=("digests",),
    ),
    Fault(
        name="digest_cut",
        meaning="the digest API's connection ends in the middle of the answer",
        digests=httpproxy.cut,
        words=("/cache/checksums: ClientPayloadError",),
        checks=("digests",),
    ),
)

LEAKS = (
    Fault(
        name="leak_lock",
        meaning="somebody keeps a read lock on every object that was hit",
        rpc={
            Op.LOOKUP: sabotage.remember_lookup,
            Op.QUERY_PREFETCH_STATUS: sabotage.leak_lock,
        },
        words=("read-locked objects more than before the run",),
        checks=("residue",),
    ),
    Fault(
        name="leak_session",
        meaning="END_SESSION is acknowledged and ends nothing",
        rpc={Op.END_SESSION: sabotage.swallow},
        words=("sessions more than before the run",),
        checks=("residue",),
    ),
    Fault(
        name="leak_registration",
        meaning="UNREGISTER_KV_CACHE is acknowledged and does nothing",
        rpc={Op.UNREGISTER_KV_CACHE: sabotage.swallow},
        words=("the server still holds registrations of instance",),
        checks=("residue",),
    ),
)

ENGINE = (
    Fault(name="shm_pass_through", meaning="no fault", transport=SHM),
    Fault(
        name="corrupt_slot",
        meaning="one bit of a slot in the server's pool is wrong",
        rpc={Op.PREPARE_RETRIEVE: sabotage.corrupt_slot},
        words=("CHECKSUM MISMATCH, leg destination, 1 of", "chunk 1"),
        checks=("content",),
        transport=SHM,
    ),
    Fault(
        name="slots_swapped",
        meaning="PREPARE_RETRIEVE names the slots in the wrong order",
        rpc={Op.PREPARE_RETRIEVE: sabotage.slots_swapped},
        words=("CHECKSUM MISMATCH, leg destination", "chunk 1 rank 0 layer 0"),
        checks=("content",),
        transport=SHM,
    ),
    Fault(
        name="slot_out_of_pool",
        meaning="PREPARE_RETRIEVE names a slot behind the end of the pool",
        rpc={Op.PREPARE_RETRIEVE: sabotage.slot_out_of_pool},
        words=("within a pool of",),
        checks=("retrieve",),
        transport=SHM,
    ),
    Fault(
        name="slot_missing",
        meaning="PREPARE_RETRIEVE names one slot too few",
        rpc={Op.PREPARE_RETRIEVE: sabotage.slot_missing},
        words=("1 chunks came, 2 were asked for",),
        checks=("retrieve",),
        transport=SHM,
    ),
    Fault(
        name="commit_dropped",
        meaning="COMMIT_STORE is acknowledged and commits nothing",
        rpc={Op.COMMIT_STORE: sabotage.commit_dropped},
        words=("never became visible",),
        checks=("visibility",),
        options=("--visible-within", "0.2"),
        transport=SHM,
    ),
    Fault(
        name="retrieve_commit_dropped",
        meaning="COMMIT_RETRIEVE is acknowledged and keeps its locks",
        rpc={Op.COMMIT_RETRIEVE: sabotage.retrieve_commit_dropped},
        words=("read-locked objects more than before the run",),
        checks=("residue",),
        transport=SHM,
    ),
    Fault(name="inline_pass_through", meaning="no fault", transport=INLINE),
    Fault(
        name="inline_garbled",
        meaning="the inline tensors are noise",
        rpc={Op.PREPARE_RETRIEVE: sabotage.inline_garbled},
        words=("RETRIEVE",),
        checks=("retrieve",),
        transport=INLINE,
    ),
    Fault(
        name="inline_cut",
        meaning="the stream of inline tensors ends in the middle",
        rpc={Op.PREPARE_RETRIEVE: sabotage.inline_cut},
        words=("RETRIEVE",),
        checks=("retrieve",),
        transport=INLINE,
    ),
    Fault(
        name="inline_flip",
        meaning="one bit of an inline tensor is wrong",
        rpc={Op.PREPARE_RETRIEVE: sabotage.inline_flip},
        words=("CHECKSUM MISMATCH, leg destination, 1 of",),
        checks=("content",),
        transport=INLINE,
    ),
)
