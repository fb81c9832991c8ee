"""The table of faults: what each name means, where it hooks, and what a switch may set."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from benchserver.clock import NS_PER_MS
from benchserver.refserver.faults import (
    leaks,
    lookups,
    plans,
    replies,
    tierfaults,
    webfaults,
)
from benchserver.refserver.faults.fault import Fault, ReplyAct
from benchserver.refserver.faults.settings import ALL_OPS, Settings
from benchserver.refserver.faults.table_transfers import DELIVERIES, STORES
from protocol.httpapi import CHECKSUMS_PATH, STATUS_PATH
from protocol.ops import MOVING, Op

_RETRIEVE = Settings(ops=frozenset((Op.RETRIEVE,)))
_KEYED = (
    Op.LOOKUP,
    Op.FREE_LOOKUP_LOCKS,
    *MOVING,
    Op.PREPARE_STORE,
    Op.COMMIT_RETRIEVE,
)
"""The operations that begin with a key."""

_STORED = (Op.STORE, Op.COMMIT_STORE)
"""With each of these a rank's chunks are stored, in one transfer mode or the other."""


def _ms(value: int) -> int:
    return value * NS_PER_MS


_LOOKUPS = (
    Fault(
        name="miscount_up",
        meaning="the status query counts one hit too many",
        calls=lookups.counting(1, lookups.is_hit),
    ),
    Fault(
        name="miscount_down",
        meaning="the status query counts one hit too few",
        calls=lookups.counting(-1, lookups.is_hit),
    ),
    Fault(
        name="miscount_cold",
        meaning="the status query counts a hit where there is none",
        calls=lookups.counting(1, lookups.is_miss),
    ),
    Fault(
        name="hole_counted",
        meaning="the middle chunk is never stored, and LOOKUP counts on behind it",
        calls=lookups.counted_over_hole(),
    ),
    Fault(
        name="ignored_salt",
        meaning="tenants see each other: the cache salt is ignored",
        calls=dict.fromkeys(_KEYED, lookups.without_salt),
    ),
    Fault(
        name="ignored_model",
        meaning="models see each other's chunks: the model name is ignored",
        calls={
            **dict.fromkeys(_KEYED, lookups.without_model),
            Op.REGISTER_KV_CACHE: lookups.register_without_model,
            Op.REGISTER_ENGINE_DRIVEN: lookups.register_engine_without_model,
        },
    ),
    Fault(
        name="ignored_end",
        meaning="LOOKUP counts, and locks, behind the end of its range as far as its tokens go",
        calls=dict.fromkeys((Op.LOOKUP, Op.FREE_LOOKUP_LOCKS), lookups.without_end),
    ),
    Fault(
        name="ignored_prefix",
        meaning="a chunk is known by its own tokens, whatever stands before them",
        patch=lookups.hash_without_prefix,
    ),
    Fault(
        name="slow_prefetch",
        meaning='the status query answers "still running" for a while',
        calls=lookups.running_prefetch(ends=True),
        params=("delay",),
        defaults=Settings(delay_ns=_ms(30)),
        harmless=True,
    ),
    Fault(
        name="stuck_prefetch",
        meaning='the status query answers "still running" for ever',
        calls=lookups.running_prefetch(ends=False),
    ),
)

_LEAKS = (
    Fault(
        name="leak_lock",
        meaning="one read lock too many stays on every object that is hit",
        calls=leaks.locked_twice(),
    ),
    Fault(
        name="leak_session",
        meaning="END_SESSION is acknowledged and ends nothing",
        calls={Op.END_SESSION: leaks.swallow},
    ),
    Fault(
        name="leak_registration",
        meaning="unregistering is acknowledged and does nothing",
        calls={
            Op.UNREGISTER_KV_CACHE: leaks.swallow,
            Op.UNREGISTER_ENGINE_DRIVEN: leaks.swallow,
        },
    ),
    Fault(
        name="leak_read",
        meaning="COMMIT_RETRIEVE is acknowledged and keeps the objects locked",
        calls={Op.COMMIT_RETRIEVE: leaks.keep_read},
        params=("rank",),
    ),
    Fault(
        name="leak_memory",
        meaning="every STORE is done, and 100 kB are kept for ever",
        calls=dict.fromkeys(_STORED, leaks.keep_memory),
        params=("rank",),
    ),
    Fault(
        name="leak_descriptor",
        meaning="every STORE is done, and leaves a file open",
        calls=dict.fromkeys(_STORED, leaks.keep_descriptor),
        patch=leaks.closed_at_last,
        params=("rank",),
    ),
)


def _reply_fault(name: str, meaning: str, act: ReplyAct) -> Fault:
    return Fault(name=name, meaning=meaning, reply=act, params=("op", "rank"), defaults=_RETRIEVE)


_REPLIES = (
    _reply_fault("lost_reply", "a call is done and its reply is lost", replies.lose),
    Fault(
        name="lost_request",
        meaning="a call is not done and gets no reply",
        act=replies.lose_request,
        params=("op", "rank"),
        defaults=_RETRIEVE,
    ),
    Fault(
        name="late_reply",
        meaning="a reply comes late; the client's other calls are answered meanwhile",
        reply=replies.delay,
        params=("op", "delay", "rank"),
        defaults=Settings(ops=_RETRIEVE.ops, delay_ns=_ms(1500)),
    ),
    _reply_fault("duplicate_reply", "a call is answered twice", replies.duplicate),
    _reply_fault("garbled_reply", "the result of a call is noise", replies.garble),
    _reply_fault("cut_reply", "a reply ends after its first frame", replies.cut),
    _reply_fault("wrong_op", "a reply names another operation", replies.answer_other_op),
    _reply_fault("foreign_uid", "a reply comes under a uid that is not its own",
                 replies.answer_other_uid),
    _reply_fault("unknown_uid", "a reply comes to a request that was never made",
                 replies.answer_unsent),
)  # fmt: skip

_PLANS = (
    Fault(
        name="slot_out_of_pool",
        meaning="PREPARE_RETRIEVE names a slot behind the end of the pool",
        calls=plans.planned(plans.slot_out_of_pool, inline=False),
        params=("rank",),
    ),
    Fault(
        name="slot_missing",
        meaning="PREPARE_RETRIEVE names one slot too few",
        calls=plans.planned(plans.slot_missing, inline=False),
        params=("rank",),
    ),
    Fault(
        name="inline_garbled",
        meaning="the inline tensors are noise",
        calls=plans.planned(plans.inline_garbled, inline=True),
        params=("rank",),
    ),
    Fault(
        name="inline_cut",
        meaning="the stream of inline tensors ends in the middle",
        calls=plans.planned(plans.inline_cut, inline=True),
        params=("rank",),
    ),
)

_HTTP = (
    Fault(
        name="digest_lies",
        meaning="the digest API answers a wrong digest",
        http={CHECKSUMS_PATH: webfaults.lie_about_digests},
    ),
    Fault(
        name="digest_hangs",
        meaning="the digest API never answers",
        http={CHECKSUMS_PATH: webfaults.hang},
    ),
    Fault(
        name="digest_500",
        meaning="the digest API fails",
        http={CHECKSUMS_PATH: webfaults.fail},
    ),
    Fault(
        name="digest_half_json",
        meaning="the digest API answers half a document",
        http={CHECKSUMS_PATH: webfaults.halve},
    ),
    Fault(
        name="digest_cut",
        meaning="the digest API's connection ends in the middle of the answer",
        http={CHECKSUMS_PATH: webfaults.break_off},
    ),
    Fault(
        name="status_lies",
        meaning="/status counts one session more each time",
        http={STATUS_PATH: webfaults.grow_sessions},
    ),
    Fault(
        name="unhealthy",
        meaning="/status says that the server is not healthy",
        http={STATUS_PATH: webfaults.fall_ill},
    ),
    Fault(
        name="dead_thread",
        meaning="/status says that the thread that evicts is dead, and that all is well",
        http={STATUS_PATH: webfaults.lose_thread},
    ),
    Fault(
        name="status_500",
        meaning="/status fails",
        http={STATUS_PATH: webfaults.fail},
    ),
)

_TIERS = (
    Fault(
        name="tier_read_error",
        meaning="a read from L2 fails",
        tier=tierfaults.fail_reads,
    ),
    Fault(
        name="tier_short_read",
        meaning="half of an object comes from L2, and the tier says so",
        tier=tierfaults.cut_reads,
    ),
    Fault(
        name="tier_write_error",
        meaning="a write to L2 fails, and nothing of it is kept",
        tier=tierfaults.refusing_writes(errno.EIO),
    ),
    Fault(
        name="tier_enospc",
        meaning="L2 is full and takes nothing more",
        tier=tierfaults.refusing_writes(errno.ENOSPC),
    ),
    Fault(
        name="tier_stall",
        meaning="a probe of L2 or a read from it hangs for a while",
        tier=tierfaults.stall,
        params=("delay",),
        defaults=Settings(delay_ns=_ms(30)),
        harmless=True,
    ),
    Fault(
        name="tier_lies",
        meaning="L2 says that it has everything, and gives nothing of it",
        tier=tierfaults.lying_probes,
    ),
    Fault(
        name="tier_corrupt",
        meaning="one bit of what comes from L2 is wrong, and nobody checks it",
        tier=tierfaults.corrupt_reads,
    ),
    Fault(
        name="tier_empty_read",
        meaning="a read from L2 is acknowledged and gives zeros",
        tier=tierfaults.empty_reads,
    ),
)

_LIVENESS = (
    Fault(
        name="delay",
        meaning="calls take a while longer",
        act=replies.slow_down,
        params=("op", "delay", "rank"),
        defaults=Settings(ops=ALL_OPS, delay_ns=_ms(30)),
        harmless=True,
    ),
    Fault(
        name="slow",
        meaning="calls take a share of their time longer, that of the faults before included",
        act=replies.slow_by_share,
        params=("op", "share", "rank"),
        defaults=Settings(ops=_RETRIEVE.ops, share_percent=15),
        harmless=True,
    ),
    Fault(
        name="freeze",
        meaning="the whole process stops for a while, HTTP too",
        act=replies.freeze,
        params=("op", "delay"),
        defaults=Settings(ops=_RETRIEVE.ops, delay_ns=_ms(3000)),
    ),
    Fault(
        name="crash",
        meaning="the process dies in a call: arrived, done but not answered, or replied",
        act=replies.crash,
        reply=replies.crash_after,
        params=("op", "at"),
        defaults=_RETRIEVE,
    ),
)

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        *DELIVERIES,
        *STORES,
        *_LOOKUPS,
        *_LEAKS,
        *_REPLIES,
        *_PLANS,
        *_HTTP,
        *_TIERS,
        *_LIVENESS,
    )
}
