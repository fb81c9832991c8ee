"""PING while others load the server: whether one client's requests hold up another's.

Over a connection of its own, so that nothing of ours stands before it.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from benchserver.client.connection import CallFailedError, ConnectionLostError
from benchserver.clock import NS_PER_MS
from benchserver.scenarios.load.series import PING
from benchserver.stage.stage import Stage
from protocol.ops import Op

_EVERY_NS = 100 * NS_PER_MS


async def ping_meanwhile(stage: Stage, begin_ns: int) -> NoReturn:
    """PING ten times a second, and count from `begin_ns` on; a release without it is not asked."""
    dialect = stage.met.dialect
    if Op.PING not in dialect.ops:
        await asyncio.Event().wait()
    arguments = (None,) if dialect.pings_name_instances else ()
    latencies = stage.measures.latencies[PING]
    connection = stage.connections.ask(dialect, "PING under load")
    try:
        while True:
            await stage.clock.sleep_ns(_EVERY_NS)
            began_ns, answered = stage.clock.now_ns(), True
            try:
                await connection.call(Op.PING, *arguments)
            except ConnectionLostError:
                await asyncio.Event().wait()  # those of the workers will tell
            except CallFailedError:
                answered = False
            waited_ns = stage.clock.now_ns() - began_ns
            if began_ns < begin_ns:
                continue
            if answered:
                latencies.add(waited_ns)
            else:
                latencies.add_censored(waited_ns)
    finally:
        await connection.close()
