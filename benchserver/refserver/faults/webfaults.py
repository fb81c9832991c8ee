"""Faults of the HTTP API."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from benchserver.refserver.faults.call import HttpAnswer, HttpCall
from benchserver.refserver.faults.fault import HttpAct


def _when_it_fires(act: HttpAct) -> HttpAct:
    async def hooked(call: HttpCall) -> HttpAnswer:
        return await (act(call) if call.active.fires() else call.ask())

    return hooked


@_when_it_fires
async def lie_about_digests(call: HttpCall) -> HttpAnswer:
    """Change the last digit of the first digest."""
    answer = await call.ask()
    document = json.loads(answer.body)
    digests = document.get("chunk_checksums")
    if isinstance(digests, list) and digests:
        digests[0] = digests[0][:-1] + ("1" if digests[0][-1] == "0" else "0")
    return replace(answer, body=json.dumps(document).encode())


@_when_it_fires
async def grow_sessions(call: HttpCall) -> HttpAnswer:
    """Count one session more each time."""
    answer = await call.ask()
    document = json.loads(answer.body)
    document["active_sessions"] += call.active.fired
    return replace(answer, body=json.dumps(document).encode())


@_when_it_fires
async def fall_ill(call: HttpCall) -> HttpAnswer:
    """Say that all is not well, and not what."""
    answer = await call.ask()
    document = json.loads(answer.body)
    document["is_healthy"] = document["storage_manager"]["is_healthy"] = False
    return replace(answer, body=json.dumps(document).encode())


@_when_it_fires
async def lose_thread(call: HttpCall) -> HttpAnswer:
    """Say of the thread that evicts that it is dead, and of nothing else that it is not well."""
    answer = await call.ask()
    document = json.loads(answer.body)
    document["storage_manager"]["l1_eviction_controller"]["thread_alive"] = False
    return replace(answer, body=json.dumps(document).encode())


@_when_it_fires
async def hang(_call: HttpCall) -> HttpAnswer:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@_when_it_fires
async def fail(_call: HttpCall) -> HttpAnswer:
    """Answer with an error status."""
    return HttpAnswer(status=500, body=b'{"detail": "disk on fire"}')


@_when_it_fires
async def halve(call: HttpCall) -> HttpAnswer:
    """Send the first half of the document, as if it were all."""
    answer = await call.ask()
    return replace(answer, body=answer.body[: len(answer.body) // 2])


@_when_it_fires
async def break_off(call: HttpCall) -> HttpAnswer:
    """Send half of the document, and end the connection."""
    return replace(await call.ask(), cut=True)
