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
from benchserver.stage.stage import Crew, Stage
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.keys import CacheKey
from protocol.ops import Op


async def look_up(
    stage: Stage, crew: Crew, request: OpenRequest, which: str, *, expected: int, total: int
) -> LookupRecord:
    """LOOKUP and wait for the hit count; `expected` chunks of `total` should be hit."""
    began_ns = stage.clock.now_ns()
    chunks, outcome, reason = 0, Outcome.OK, ""
    try:
        hits = await crew.desk.lookup(request)
        chunks, began_ns, ended_ns = hits.chunks, hits.began_ns, hits.ended_ns
    except CallFailedError as error:
        outcome, reason = Outcome.UNKNOWN, _reason(error, Op.LOOKUP)
        ended_ns = stage.clock.now_ns()
    except LocalProtocolError as error:
        outcome, reason = Outcome.UNKNOWN, _unsent(error)
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
    stage: Stage,
    crew: Crew,
    request: OpenRequest,
    worker: Worker,
    window: Window,
    *,
    start: int = 0,
    end: int | None = None,
) -> TransferRecord:
    """STORE a rank's chunks `[start, end)` out of the blocks of a window, which are theirs alone.

    `end` None: that of the request.  ValueError if that is no whole chunk.
    """
    part = _part(crew, request, start, end)
    move = worker.mode.store(_key(request, worker, part), window)
    return await _transfer(stage, crew, worker, Op.STORE, move, part)


async def retrieve(
    stage: Stage,
    crew: Crew,
    request: OpenRequest,
    worker: Worker,
    window: Window,
    *,
    skip_tokens: int = 0,
    end: int | None = None,
) -> TransferRecord:
    """RETRIEVE a rank's chunks `[0, end)` into the first blocks of a window; skip the first tokens.

    `end` None: that of the request.  What must be poisoned before and looked at afterwards is
    `window.first_blocks` of that range.  ValueError if that is no whole chunk, or less than what
    LOOKUP has locked: a rank gives back the locks of what it has read, so it reads all of it.
    """
    part = _part(crew, request, 0, end)
    if part.stop < request.locked_end and worker.kv_rank in request.locked_ranks:
        raise ValueError(
            f"RETRIEVE of {part.stop} tokens, but {request.locked_end} are locked for this rank"
        )
    target = window.first_blocks(len(part) // crew.geometry.spec.block_size)
    move = _retrieved(request, worker, target, part, skip_tokens)
    return await _transfer(stage, crew, worker, Op.RETRIEVE, move, part, skip_tokens)


async def settle(crew: Crew, request: OpenRequest) -> list[EndRecord]:
    """Free what nobody read of a request, and end its session."""
    return await crew.desk.settle(request)


def _part(crew: Crew, request: OpenRequest, start: int, end: int | None) -> range:
    """Return the tokens of a request that a transfer is about."""
    part, step = range(start, request.end if end is None else end), crew.geometry.chunk_tokens
    if not 0 <= part.start < part.stop <= request.end or part.start % step or part.stop % step:
        raise ValueError(
            f"tokens [{part.start}, {part.stop}) of {request.end} are no whole chunks of {step}"
        )
    return part


def _key(request: OpenRequest, worker: Worker, part: range) -> CacheKey:
    return request.keys.key(
        request.tokens,
        start=part.start,
        end=part.stop,
        request_id=request.request_id,
        kv_rank=worker.kv_rank,
    )


async def _retrieved(
    request: OpenRequest, worker: Worker, window: Window, part: range, skip_tokens: int
) -> Moved:
    key = _key(request, worker, part)
    moved = await worker.mode.retrieve(key, window, skip_tokens=skip_tokens)
    if worker.kv_rank in request.locked_ranks:
        request.locked_ranks.remove(worker.kv_rank)  # its lock is given back
    return moved


async def _transfer(
    stage: Stage,
    crew: Crew,
    worker: Worker,
    op: Op,
    move: Coroutine[Any, Any, Moved],
    part: range,
    skip_tokens: int = 0,
) -> TransferRecord:
    geometry = replace(crew.geometry, num_tokens=len(part))
    began_ns = stage.clock.now_ns()
    moved, outcome, reason = await _outcome(stage, op, move)
    hint = "" if moved else dtype_hint(crew.engine.spec)
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
        reason=reason + hint,
    )


async def _outcome(
    stage: Stage, op: Op, move: Coroutine[Any, Any, Moved]
) -> tuple[Moved | None, Outcome, str]:
    """Return what moved, or None and why not."""
    try:
        return await stage.finishing.run(move), Outcome.OK, ""
    except RefusedError as error:
        outcome, reason = Outcome.FAIL, str(error)
    except RemoteProtocolError as error:
        outcome, reason = Outcome.FAIL, one_line(error)
    except LocalProtocolError as error:
        outcome, reason = Outcome.UNKNOWN, _unsent(error)
    except CallFailedError as error:
        outcome, reason = Outcome.UNKNOWN, _reason(error, op)
    return None, outcome, reason


def _unsent(error: LocalProtocolError) -> str:
    """Say that the server is not to blame: it was never asked, or not to the end."""
    return f"not sent by bench-server: {one_line(error)}"


def _reason(error: CallFailedError, step: Op) -> str:
    """Return the error's text; the operation only where it is not the step itself."""
    return one_line(error.reason if error.op is step else error)
