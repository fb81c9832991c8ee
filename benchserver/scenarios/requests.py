"""The verbs of one request on a stage, for every scenario: look up, store, retrieve, settle.

Each returns records of what came; none raises for an answer that is bad or missing.  Whether the
server is still there after that is for the scenario to ask (`stage.met.alive`).

A transfer that was begun goes to its end even if the scenario is cancelled: a STORE given up
between PREPARE and COMMIT would leave its reservation on the server.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from benchserver.client.connection import CallFailedError
from benchserver.client.lookups import OpenRequest
from benchserver.client.transfer import Moved, RefusedError, dtype_hint
from benchserver.client.worker import Worker
from benchserver.errors import one_line
from benchserver.history import EndRecord, LookupRecord, Outcome, TransferRecord
from benchserver.kv.blocks import Window
from benchserver.stage.stage import Stage
from protocol.errors import ProtocolError
from protocol.keys import CacheKey
from protocol.ops import Op


async def look_up(
    stage: Stage, request: OpenRequest, which: str, *, expected: int, total: int
) -> LookupRecord:
    """LOOKUP and wait for the hit count; `expected` chunks of `total` should be hit."""
    began_ns = stage.clock.now_ns()
    chunks, outcome, reason = 0, Outcome.OK, ""
    try:
        hits = await stage.crew.desk.lookup(request)
        chunks, began_ns, ended_ns = hits.chunks, hits.began_ns, hits.ended_ns
    except CallFailedError as error:
        outcome, reason = Outcome.UNKNOWN, _reason(error, Op.LOOKUP)
        ended_ns = stage.clock.now_ns()
    return LookupRecord(
        which=which,
        outcome=outcome,
        hits=chunks,
        expected=expected,
        total=total,
        began_ns=began_ns,
        ended_ns=ended_ns,
        reason=reason,
    )


async def store(
    stage: Stage, request: OpenRequest, worker: Worker, window: Window
) -> TransferRecord:
    """STORE a rank's chunks out of the blocks of a window."""
    move = worker.mode.store(_key(request, worker), window)
    return await _transfer(stage, request, worker, Op.STORE, move)


async def retrieve(
    stage: Stage, request: OpenRequest, worker: Worker, window: Window, *, skip_tokens: int = 0
) -> TransferRecord:
    """RETRIEVE a rank's chunks into the blocks of a window, except the first tokens."""
    move = _retrieved(request, worker, window, skip_tokens)
    return await _transfer(stage, request, worker, Op.RETRIEVE, move, skip_tokens)


async def settle(stage: Stage, request: OpenRequest) -> list[EndRecord]:
    """Free what nobody read of a request, and end its session."""
    return await stage.crew.desk.settle(request)


def _key(request: OpenRequest, worker: Worker) -> CacheKey:
    return request.keys.key(
        request.tokens, end=request.end, request_id=request.request_id, kv_rank=worker.kv_rank
    )


async def _retrieved(
    request: OpenRequest, worker: Worker, window: Window, skip_tokens: int
) -> Moved:
    moved = await worker.mode.retrieve(_key(request, worker), window, skip_tokens=skip_tokens)
    if worker.kv_rank in request.locked_ranks:
        request.locked_ranks.remove(worker.kv_rank)  # its lock is given back
    return moved


async def _transfer(
    stage: Stage,
    request: OpenRequest,
    worker: Worker,
    op: Op,
    move: Coroutine[Any, Any, Moved],
    skip_tokens: int = 0,
) -> TransferRecord:
    geometry = replace(stage.crew.geometry, num_tokens=request.end)
    began_ns = stage.clock.now_ns()
    moved, outcome, reason = await _outcome(stage, op, move)
    ended_ns = stage.clock.now_ns() if moved is None else moved.landed_ns
    return TransferRecord(
        name=op.name,
        rank=worker.rank,
        outcome=outcome,
        chunks=0 if moved is None else moved.chunks,
        total=geometry.chunks,
        nbytes=0 if moved is None else geometry.bytes_behind(skip_tokens),
        began_ns=began_ns if moved is None else moved.began_ns,
        replied_ns=ended_ns if moved is None else moved.replied_ns,
        ended_ns=ended_ns,
        skip_tokens=skip_tokens,
        reason=reason,
    )


async def _outcome(
    stage: Stage, op: Op, move: Coroutine[Any, Any, Moved]
) -> tuple[Moved | None, Outcome, str]:
    """Return what moved, or None and why not."""
    try:
        return await stage.finishing.run(move), Outcome.OK, ""
    except RefusedError as error:
        outcome, reason = Outcome.FAIL, str(error)
    except ProtocolError as error:
        outcome, reason = Outcome.FAIL, one_line(error)
    except CallFailedError as error:
        outcome, reason = Outcome.UNKNOWN, _reason(error, op)
    return None, outcome, reason + dtype_hint(stage.crew.engine.spec)


def _reason(error: CallFailedError, step: Op) -> str:
    """Return the error's text; the operation only where it is not the step itself."""
    return one_line(error.reason if error.op is step else error)
