"""POST and GET /faults, and faults of the HTTP API itself, on a whole server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from benchserver.errors import UsageError
from protocol.health import read_health
from tests.httpstage import serving

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def asking(*faults: str) -> AsyncIterator[Ask]:
    """What asks a server with these faults."""
    async with serving(faults=faults) as site:

        async def ask(path: str, body: Any = None, data: bytes | None = None) -> tuple[int, Any]:
            method = "GET" if body is None and data is None else "POST"
            answer = await site.ask(method, path, body, data=data)
            return answer.status, answer.document

        yield ask


@pytest_asyncio.fixture
async def ask() -> AsyncIterator[Ask]:
    """Give what asks a server without faults."""
    async with asking() as ask:
        yield ask


def names(document: Any) -> list[str]:
    return [fault["fault"] for fault in document["faults"]]


@pytest.mark.asyncio
async def test_faults_of_the_start_are_listed_and_replaced() -> None:
    async with asking("leak_session", "flip_byte:layer=1@3") as ask:
        status, document = await ask("/faults")
        assert (status, names(document)) == (200, ["leak_session", "flip_byte:layer=1@3"])
        assert document["faults"][0] == {
            "fault": "leak_session",
            "meaning": "END_SESSION is acknowledged and ends nothing",
            "calls": 0,
            "fired": 0,
        }
        status, document = await ask("/faults", {"faults": ["status_500@2"]})
        assert (status, names(document)) == (200, ["status_500@2"])
        assert [(await ask("/status"))[0] for _ in range(3)] == [200, 500, 200]
        document = (await ask("/faults"))[1]
        assert (document["faults"][0]["calls"], document["faults"][0]["fired"]) == (3, 1)
        status, document = await ask("/faults", {"faults": []})
        assert (status, names(document)) == (200, [])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"faults": ["nonsense"]}', "fault 'nonsense': no such fault"),
        (b'{"faults": ["flip_byte", "flip_byte:x"]}', "layer 'x', expected"),
        (b'{"faults": "flip_byte"}', "faults is 'flip_byte', expected"),
        (b'{"faults": [1]}', "faults is [1], expected"),
        (b'{"faults": ["tier_lies@2"]}', "fault 'tier_lies@2': this server has no L2 tier"),
        (b"{}", "faults is None, expected"),
        (b"[]", "the body is not a JSON object"),
        (b"", "the body is not JSON"),
        (b'{"faults": ["a\\nb"]}', r"fault 'a\nb': no such fault"),
    ],
)
async def test_a_mistake_is_one_line_and_changes_nothing(body: bytes, expected: str) -> None:
    async with asking("leak_session") as ask:
        status, document = await ask("/faults", data=body)
        assert status == 400
        assert expected in document["detail"]
        assert document["detail"].isprintable()
        assert names((await ask("/faults"))[1]) == ["leak_session"]


@pytest.mark.asyncio
async def test_a_fault_of_a_tier_does_not_start_without_one() -> None:
    with pytest.raises(UsageError, match="this server has no L2 tier, start it with --l2"):
        async with asking("leak_session", "tier_lies") as _ask:
            raise AssertionError("it started")


@pytest.mark.asyncio
async def test_status_lies_and_halves() -> None:
    async with asking("status_lies") as ask:
        counts = [(await ask("/status"))[1]["active_sessions"] for _ in range(3)]
        assert counts == [1, 2, 3]


@pytest.mark.asyncio
async def test_an_answer_that_hangs_does_not_hold_up_the_end(ask: Ask) -> None:
    body = {"block_ids": [1], "chunk_size": 1, "instance_id": 1}
    assert (await ask("/cache/checksums", body))[0] == 404
    assert (await ask("/faults", {"faults": ["digest_hangs"]}))[0] == 200
    with pytest.raises((asyncio.TimeoutError, TimeoutError)):
        await asyncio.wait_for(ask("/cache/checksums", body), 0.1)
    assert (await ask("/healthcheck"))[0] == 200


@pytest.mark.asyncio
async def test_an_answer_is_cut_or_halved_with_its_status_kept(ask: Ask) -> None:
    body = {"block_ids": [1], "chunk_size": 1, "instance_id": 1}
    await ask("/faults", {"faults": ["digest_half_json"]})
    status, text = await ask("/cache/checksums", body)
    assert status == 404
    assert text.startswith('{"detail": "inst')
    assert '"}' not in text
    await ask("/faults", {"faults": ["digest_cut"]})
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask("/cache/checksums", body)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fault", "bad"),
    [
        ("unhealthy", ("storage_manager (is_healthy false)",)),
        ("dead_thread", ("storage_manager.l1_eviction_controller (thread_alive false)",)),
    ],
)
async def test_a_status_that_says_that_not_all_is_well(fault: str, bad: tuple[str, ...]) -> None:
    async with asking(fault) as ask:
        _, document = await ask("/status")
        assert read_health(document).bad == bad
        await ask("/faults", {"faults": []})
        _, document = await ask("/status")
        assert read_health(document).bad == ()
