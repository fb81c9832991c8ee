"""Faults of requests and replies, of slots, and of the server as a whole."""

from __future__ import annotations

from benchserver.selftest.case import INLINE, SHM, Case
from benchserver.selftest.cases.sharing import SHORT

REPLIES = (
    Case(
        switch="lost_reply@1",
        checks=("retrieve",),
        words=("RETRIEVE: no answer within 1 s",),
        options=SHORT,
    ),
    Case(
        switch="lost_reply:STORE@1",
        checks=("store",),
        words=("STORE: no answer within 1 s",),
        options=SHORT,
    ),
    Case(
        switch="lost_reply:COMMIT_STORE@1",
        checks=("store",),
        words=("no answer within 1 s",),
        options=SHORT,
        transport=SHM,
    ),
    Case(
        switch="lost_reply:UNREGISTER_KV_CACHE",
        checks=("replies",),
        words=("UNREGISTER_KV_CACHE: no answer within 1 s", "is unknown"),
        options=SHORT,
    ),
    Case(
        switch="lost_request:UNREGISTER_KV_CACHE",
        checks=("replies",),
        words=("UNREGISTER_KV_CACHE: no answer within 1 s", "is unknown"),
        options=(*SHORT, "--no-http"),
        note="no HTTP",
    ),
    Case(
        switch="lost_request@2",
        checks=("partial",),
        words=("seq=0", "RETRIEVE without the first", "no answer within 1 s"),
        options=SHORT,
    ),
    Case(
        switch="lost_request@3",
        checks=("retrieve",),
        words=("seq=1", "RETRIEVE: no answer within 1 s"),
        options=SHORT,
    ),
    Case(
        switch="lost_request:ANY@9+",
        checks=("run",),
        words=("its HTTP API still answers, so its RPC thread is dead or stuck",),
        options=SHORT,
    ),
    Case(
        switch="late_reply:RETRIEVE,1150ms@1",
        checks=("replies", "retrieve"),
        words=("late reply: RETRIEVE",),
        options=(*SHORT, "--interval", "0.6"),
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
    Case(switch="cut_reply@1", checks=("replies",), words=("malformed reply",), options=SHORT),
    Case(
        switch="wrong_op",
        checks=("replies", "retrieve"),
        words=("malformed reply", "is for operation"),
    ),
    Case(
        switch="foreign_uid@1",
        checks=("replies", "retrieve"),
        words=("unknown reply", "was never sent on this connection"),
        options=SHORT,
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

LIVENESS = (
    Case(
        switch="freeze@1",
        checks=("retrieve",),
        words=("RETRIEVE: no answer within 1 s",),
        options=SHORT,
    ),
    Case(switch="crash:REGISTER_KV_CACHE", checks=("run",), words=("was lost",)),
    Case(switch="crash:LOOKUP,arrived", checks=("run", "cold_lookup"), words=("LOOKUP",)),
    Case(switch="crash:STORE", checks=("run", "store"), words=("STORE",)),
    Case(switch="crash:STORE,replied", checks=("run",), words=("was lost",)),
    Case(switch="crash:RETRIEVE@3", checks=("run", "retrieve"), words=("RETRIEVE",)),
)
