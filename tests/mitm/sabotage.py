"""What faults do to requests, replies and the client's memory; one small function each."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import msgpack

from protocol.dialects import V056
from protocol.messages import VOID
from protocol.ops import Op
from tests.mitm.link import DONE, MAX_STORES, Call, StoreSeen, pass_through
from tests.mitm.memory import flip_bit

_HARMLESS_S = 0.03
_NOISE_SEED = 20
_POLL_S = 0.002
_MAX_POLLS = 1000
_UNSENT_UID = 1 << 20


# RETRIEVE, lmcache_driven


async def noop_retrieve(call: Call) -> None:
    """Say that everything was restored; give the reader's lock back, and do nothing."""
    await call.ask(Op.FREE_LOOKUP_LOCKS, replace(call.key, num_kv_readers=1), 1)
    await call.answer(DONE)


async def flip_byte(call: Call) -> None:
    """Flip one bit in the last layer of the last rank's destination."""
    frames = await call.forward()
    if call.is_last_rank:
        flip_bit(call.memory.page(-1, call.tables[-1][-1]))
    await call.reply(frames)


async def swap_chunks(call: Call) -> None:
    """Put the first chunk where the second belongs, and the other way round."""
    frames = await call.forward()
    first, second = call.chunk_tables(0, 1), call.chunk_tables(1, 2)
    kept = call.memory.read(first)
    call.memory.write(first, call.memory.read(second))
    call.memory.write(second, kept)
    await call.reply(frames)


async def half_retrieve(call: Call) -> None:
    """Restore the first half of the chunks only."""
    chunks = (call.key.end - call.key.start) // call.ledger.chunk_tokens
    second = call.chunk_tables(chunks // 2, chunks)
    before = call.memory.read(second)
    frames = await call.forward()
    call.memory.write(second, before)
    await call.reply(frames)


async def canary_overwrite(call: Call) -> None:
    """Write one byte into the block behind the destination."""
    frames = await call.forward()
    ids = call.tables[-1]
    beside = max(ids) + 1 if max(ids) + 1 < call.memory.num_blocks else min(ids) - 1
    flip_bit(call.memory.page(0, beside))
    await call.reply(frames)


async def remember_store(call: Call) -> None:
    """Pass a STORE, and remember its bytes."""
    call.ledger.stores.append(
        StoreSeen(key=call.key, instance_id=call.instance_id, data=call.memory.read(call.tables))
    )
    del call.ledger.stores[:-MAX_STORES]
    await pass_through(call)


async def rank_mixup(call: Call) -> None:
    """Give every other rank the bytes of rank 0."""
    frames = await call.forward()
    first_rank = min(call.ledger.memories)
    if call.instance_id != first_rank:
        of_rank_0 = next(
            seen
            for seen in reversed(call.ledger.stores)
            if seen.instance_id == first_rank and seen.key.token_ids == call.key.token_ids
        )
        call.memory.write(call.tables, of_rank_0.data)
    await call.reply(frames)


async def stale_data(call: Call) -> None:
    """Give the last rank what it stored for the sequence before."""
    frames = await call.forward()
    mine = [seen for seen in call.ledger.stores if seen.instance_id == call.instance_id]
    if call.is_last_rank and len(mine) > 1:
        call.memory.write(call.tables, mine[-2].data)
    await call.reply(frames)


async def skip_zeroed(call: Call) -> None:
    """Let the server know of nothing to skip."""
    await _skip_more(call, -call.skip_tokens)


async def skip_one_block_more(call: Call) -> None:
    """Have the server skip one block more than the client said, if it said any."""
    chunks = (call.key.end - call.key.start) // call.ledger.chunk_tokens
    block_tokens = call.ledger.chunk_tokens * chunks // len(call.tables[0])
    await _skip_more(call, block_tokens if call.skip_tokens else 0)


async def _skip_more(call: Call, by: int) -> None:
    args = (*call.args[:-1], call.skip_tokens + by)
    await call.reply(await call.forward_as(*args))


async def refuse_transfer(call: Call) -> None:
    """Say no; the server did it."""
    await call.forward()
    await call.answer(replace(DONE, ok=False))


async def kill_server(call: Call) -> None:
    """Kill the server; the request goes nowhere."""
    call.kill()


# STORE, lmcache_driven


async def drop_store(call: Call) -> None:
    """Say that everything was stored, and do nothing."""
    await call.answer(DONE)


async def drop_last_rank(call: Call) -> None:
    """As drop_store, for the last rank alone."""
    await (drop_store if call.is_last_rank else pass_through)(call)


async def source_overwrite(call: Call) -> None:
    """Flip one bit of a stored block after it was read."""
    frames = await call.forward()
    flip_bit(call.memory.page(0, call.tables[0][0]))
    await call.reply(frames)


async def clear_before_warm(call: Call) -> None:
    """Clear the cache before every LOOKUP that follows a STORE."""
    if call.ledger.turns.get(Op.STORE, 0) + call.ledger.turns.get(Op.COMMIT_STORE, 0):
        await call.ask(Op.CLEAR, True)
    await pass_through(call)


# Replies


async def lose_reply(call: Call) -> None:
    """Keep the first reply from the client."""
    frames = await call.forward()
    if call.turn:
        await call.reply(frames)


async def garble_reply(call: Call) -> None:
    """Replace the result by noise."""
    uid, op, *_ = await call.forward()
    await call.reply((uid, op, random.Random(_NOISE_SEED).randbytes(24)))


async def duplicate_reply(call: Call) -> None:
    """Answer twice."""
    frames = await call.forward()
    await call.reply(frames)
    await call.reply(frames)


async def foreign_uid(call: Call) -> None:
    """Answer, and answer a request that was never made."""
    frames = await call.forward()
    await call.reply((msgpack.packb(_UNSENT_UID), *frames[1:]))
    await call.reply(frames)


async def foreign_reply(call: Call) -> None:
    """Answer with the reply to another operation."""
    uid, *_ = await call.forward()
    other = msgpack.packb(V056.ops[Op.NOOP].id)
    await call.reply((uid, other, msgpack.packb("OK")))


async def late_reply(call: Call) -> None:
    """Send the first reply after the client has given up."""
    frames = await call.forward()
    if not call.turn:
        await asyncio.sleep(call.delay_s)
    await call.reply(frames)


async def delay_30ms(call: Call) -> None:
    """Be slow, and right."""
    await asyncio.sleep(_HARMLESS_S)
    await pass_through(call)


# LOOKUP


async def one_hit_more(call: Call) -> None:
    """Count one chunk too many on every hit."""
    await _miscount(call, 1, on_miss=False)


async def one_hit_less(call: Call) -> None:
    """Count one chunk too few on every hit."""
    await _miscount(call, -1, on_miss=False)


async def hit_on_miss(call: Call) -> None:
    """Count one chunk on every miss."""
    await _miscount(call, 1, on_miss=True)


async def _miscount(call: Call, by: int, *, on_miss: bool) -> None:
    frames = await call.forward()
    hits = call.result_of(frames)
    if hits is VOID or (hits == 0) is not on_miss:
        await call.reply(frames)
    else:
        await call.answer(hits + by)


async def endless_prefetch(call: Call) -> None:
    """Be still at work, for ever."""
    await call.answer(VOID)


async def leak_lock(call: Call) -> None:
    """Look everything up once more, for nobody, whenever a LOOKUP hits."""
    frames = await call.forward()
    if call.result_of(frames) not in (VOID, 0):
        await _take_locks(call)
    await call.reply(frames)


async def _take_locks(call: Call) -> None:
    request_id = f"mitm-{call.turn}"
    key, tp_size = call.ledger.lookups[str(call.args[0])]
    await call.ask(Op.LOOKUP, replace(key, request_id=request_id), tp_size)
    for _ in range(_MAX_POLLS):
        if await call.ask(Op.QUERY_PREFETCH_STATUS, request_id) is not VOID:
            break
        await asyncio.sleep(_POLL_S)
    await call.ask(Op.END_SESSION, request_id)
    call.ledger.debts.append((Op.CLEAR, (True,)))


async def remember_lookup(call: Call) -> None:
    """Pass a LOOKUP, and remember its key."""
    call.ledger.lookups[call.key.request_id] = (call.key, call.args[1])
    await pass_through(call)


# Endings


async def swallow(call: Call) -> None:
    """Acknowledge, do nothing; it is done when the proxy ends."""
    call.owe()
    await call.answer(VOID)


# engine_driven


async def corrupt_slot(call: Call) -> None:
    """Flip one bit of the last slot in the server's pool, just before the client reads it."""
    frames = await call.forward()
    slot = call.result_of(frames).slots[-1]
    pool = call.ledger.pools[call.instance_id]
    flip_bit(pool[slot.offset : slot.offset + slot.length])
    await call.reply(frames)


async def slot_out_of_pool(call: Call) -> None:
    """Name a slot behind the end of the pool."""
    plan = call.result_of(await call.forward())
    beyond = replace(plan.slots[-1], offset=call.ledger.pools[call.instance_id].size)
    await call.answer(replace(plan, slots=(*plan.slots[:-1], beyond)))


async def slots_swapped(call: Call) -> None:
    """Name the slots in reverse order."""
    plan = call.result_of(await call.forward())
    await call.answer(replace(plan, slots=plan.slots[::-1]))


async def slot_missing(call: Call) -> None:
    """Leave the last slot out."""
    plan = call.result_of(await call.forward())
    await call.answer(replace(plan, slots=plan.slots[:-1]))


async def inline_garbled(call: Call) -> None:
    """Replace the stream of tensors by noise of the same length."""
    plan = call.result_of(await call.forward())
    noise = random.Random(_NOISE_SEED).randbytes(len(plan.data))
    await call.answer(replace(plan, data=noise))


async def inline_cut(call: Call) -> None:
    """Send half of the stream."""
    plan = call.result_of(await call.forward())
    await call.answer(replace(plan, data=plan.data[: len(plan.data) // 2]))


async def inline_flip(call: Call) -> None:
    """Flip one bit in the middle of the stream, which is a tensor's."""
    plan = call.result_of(await call.forward())
    data = bytearray(plan.data)
    data[len(data) // 3] ^= 1
    await call.answer(replace(plan, data=bytes(data)))


async def commit_dropped(call: Call) -> None:
    """Say that everything was committed, and do nothing."""
    await call.answer(True)


async def retrieve_commit_dropped(call: Call) -> None:
    """Acknowledge the end of a read, and keep the locks; they go when the proxy ends."""
    call.ledger.debts.append((Op.CLEAR, (True,)))
    await call.answer(True)
