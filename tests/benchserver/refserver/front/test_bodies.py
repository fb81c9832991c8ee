"""Bodies within their limits, of one and of all; what is given back when a request has ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from benchserver.refserver.front import bodies
from benchserver.refserver.front.badrequest import BadRequestError
from benchserver.refserver.front.bodies import Bodies, body, json_body, json_map


class Content:
    """Parts of a body, as they come; an error is raised in its turn, None never comes."""

    def __init__(self, *parts: bytes | Exception | None) -> None:
        self._parts = list(parts)

    async def readany(self) -> bytes:
        part = self._parts.pop(0) if self._parts else b""
        if part is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(part, Exception):
            raise part
        assert part is not None
        return part


def request_of(*parts: bytes | Exception | None) -> Any:
    return SimpleNamespace(content=Content(*parts))


async def refused(held: Bodies, *parts: bytes | Exception | None) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        async with held.of(request_of(*parts)):
            raise AssertionError("the body was taken")
    return caught.value


@pytest.mark.asyncio
async def test_a_body_is_held_as_long_as_its_request() -> None:
    held = Bodies()

    async def answer(*parts: bytes, until: int) -> bytes:
        async with held.of(request_of(*parts)):
            assert held.held_bytes == until
            return body()

    async with held.of(request_of(b"ab", b"c")):
        other = asyncio.create_task(answer(b"de", until=5))  # each request has a task of its own
        assert await other == b"de"
        assert body() == b"abc"
        assert held.held_bytes == 3
    assert held.held_bytes == 0
    async with held.of(request_of()):
        assert body() == b""


@pytest.mark.asyncio
async def test_one_body_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 4)
    held = Bodies()
    error = await refused(held, b"abc", b"de")
    assert (error.status, error.detail) == (413, "the body has more than 4 bytes")
    assert held.held_bytes == 0
    async with held.of(request_of(b"abc", b"d")):
        assert body() == b"abcd"


@pytest.mark.asyncio
async def test_all_bodies_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODIES_BYTES", 4)
    held = Bodies()
    async with held.of(request_of(b"abc")):
        error = await refused(held, b"d", b"e")
        assert error.status == 429
        assert error.detail == "bodies of other requests hold 4 bytes; ask again later"
        assert held.held_bytes == 3
    async with held.of(request_of(b"abcd")):
        assert body() == b"abcd"


@pytest.mark.asyncio
async def test_a_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_WITHIN_S", 0.01)
    held = Bodies()
    error = await refused(held, b"abc", None)
    assert (error.status, error.detail) == (408, "the body did not come")
    assert held.held_bytes == 0


@pytest.mark.asyncio
async def test_a_body_that_is_not_framed_is_refused() -> None:
    held = Bodies()
    error = await refused(held, b"abc", web.RequestPayloadError("cut"))
    assert (error.status, error.detail) == (400, "the body is not framed well")
    assert held.held_bytes == 0


@pytest.mark.asyncio
async def test_a_body_is_read_as_json_or_refused() -> None:
    held = Bodies()
    async with held.of(request_of(b'{"a"', b": [1]}")):
        assert json_body() == json_map() == {"a": [1]}
    async with held.of(request_of(b"[1]")):
        assert json_body() == [1]
        with pytest.raises(BadRequestError, match="JSON object") as caught:
            json_map()
        assert caught.value.status == 422
    for text in (b"", b"{", b"\xff", b'{"a": 1}x', b"[" * 100_000):
        async with held.of(request_of(text)):
            with pytest.raises(BadRequestError) as caught:
                json_body()
            assert caught.value.status == 422
