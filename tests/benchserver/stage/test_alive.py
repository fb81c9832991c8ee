"""What is made of a server that owes an answer, over scripted connections."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchserver.client.connection import ConnectionLostError, NoAnswerError
from benchserver.client.http import HttpApi, HttpFailedError
from benchserver.client.scripted import ScriptedConnection, in_turn
from benchserver.clock import VirtualClock
from benchserver.errors import ServerGoneError, ServerSilentError
from benchserver.history import EndRecord, Outcome
from benchserver.stage.alive import NEVER_NS, AliveCheck
from protocol.dialects import V056
from protocol.ops import Op

OWED = EndRecord(
    name="END_SESSION",
    request_id="r",
    began_ns=0,
    ended_ns=1,
    outcome=Outcome.UNKNOWN,
    reason="no answer",
)
DONE = EndRecord(name="END_SESSION", request_id="r", began_ns=0, ended_ns=1, outcome=Outcome.OK)
SILENCE = NoAnswerError(Op.NOOP, "no answer within 2 s")
LOST = ConnectionLostError(Op.NOOP, "the connection was lost")
DEAD = HttpFailedError("GET /version: no answer within 1 s")


class Web:
    """The HTTP API, which says its version or does not."""

    def __init__(self, version: Any) -> None:
        self._version = version

    async def version(self) -> str:
        if isinstance(self._version, Exception):
            raise self._version
        return cast(str, self._version)


async def check(noops: list[Any], version: Any = "0.5.6", *, http: bool = True) -> AliveCheck:
    rpc = ScriptedConnection({Op.NOOP: in_turn(*noops)}, V056, clock=VirtualClock(7))
    alive = AliveCheck(rpc, cast(HttpApi, Web(version)) if http else None, rpc.clock)
    try:
        await alive.check([DONE, OWED])
    finally:
        await rpc.close()
        assert rpc.calls == [(Op.NOOP,)] * len(noops)
        assert rpc.timeouts_ns == [2_000_000_000] * len(noops)
    return alive


@pytest.mark.asyncio
async def test_nothing_is_asked_while_nothing_is_owed() -> None:
    alive = AliveCheck(cast(Any, None), None, VirtualClock(7))
    await alive.check([DONE, DONE])
    assert alive.answered_ns == NEVER_NS


@pytest.mark.asyncio
async def test_a_server_that_answers_is_alive_and_when_is_known() -> None:
    assert (await check(["OK"])).answered_ns == 7


@pytest.mark.asyncio
async def test_a_server_that_was_stopped_until_now_is_alive() -> None:
    assert (await check([SILENCE, "OK"])).answered_ns == 7


@pytest.mark.parametrize(
    ("noops", "version", "http", "error", "words"),
    [
        ([LOST], "0.5.6", True, ServerGoneError, "the server is gone: END_SESSION: no answer"),
        ([SILENCE, LOST], "0.5.6", True, ServerGoneError, "the server is gone"),
        ([SILENCE, SILENCE], "0.5.6", True, ServerGoneError, "its RPC thread is dead or stuck"),
        ([SILENCE], DEAD, True, ServerSilentError, "its HTTP API is silent too"),
        ([SILENCE], "", False, ServerSilentError, "its HTTP API was not asked"),
    ],
)
@pytest.mark.asyncio
async def test_a_server_that_does_not_answer_ends_the_run(
    noops: list[Any], version: Any, http: bool, error: type[Exception], words: str
) -> None:
    """One that may only have been stopped is told from one that is gone: nothing is proven."""
    with pytest.raises(error, match=words):
        await check(noops, version, http=http)
    assert not issubclass(ServerSilentError, ServerGoneError)
