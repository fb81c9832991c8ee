"""The HTTP side: its token, its configuration, and that no request makes it fall over."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.refserver.front.authorization import is_authorized
from protocol import httpapi
from protocol.health import read_health
from protocol.ops import Op
from tests.httpstage import WITHIN_S, Site, engine_of, key, serving

TOKEN = "correct-horse/battery=staple"
OPEN_PATH = httpapi.HEALTH_PATH
GUARDED = [
    ("GET", "/"),
    ("GET", "/version"),
    ("GET", "/status"),
    ("GET", "/config"),
    ("GET", "/metrics"),
    ("GET", "/cache/objects"),
    ("DELETE", "/cache/objects"),
    ("POST", "/cache/checksums"),
    ("POST", "/cache/clear"),
    ("GET", "/faults"),
    ("POST", "/faults"),
    ("GET", "/nothing-here"),
    ("PUT", "/healthcheckx"),
]
POSTS = [
    ("POST", "/cache/clear"),
    ("POST", "/cache/checksums"),
    ("POST", "/faults"),
    ("DELETE", "/cache/objects"),
]


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    """Give a server with the options that it has by default."""
    async with serving() as site:
        yield site


@pytest.mark.parametrize(
    ("header", "good"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer   {TOKEN}", True),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (TOKEN, False),
        (f"Basic {TOKEN}", False),
        ("Bearer", False),
        ("Bearer ", False),
        ("", False),
        ("Bearer \udcff", False),
        ("Bearer \u00e9", False),
    ],
)
def test_what_a_header_is_worth(header: str, good: bool) -> None:
    assert is_authorized(header, TOKEN) is good


@pytest.mark.asyncio
async def test_with_a_token_every_path_but_one_asks_for_it() -> None:
    async with serving(http_token=TOKEN) as site:
        assert (await site.ask("GET", OPEN_PATH)).status == 200
        for method, path in GUARDED:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                answer = await site.ask(method, path, data=b"{}", headers=headers)
                assert answer.status == 401, (method, path)
                assert answer.headers["WWW-Authenticate"] == 'Bearer realm="bench-server"'
                assert TOKEN not in json.dumps(answer.document)
            right = {"Authorization": f"Bearer {TOKEN}"}
            answer = await site.ask(method, path, data=b"{}", headers=right)
            assert answer.status != 401, (method, path)
            assert TOKEN not in json.dumps(answer.document)
        assert not any(TOKEN in line for line in site.lines)


@pytest.mark.asyncio
async def test_without_a_token_faults_can_be_switched(site: Site) -> None:
    assert (await site.ask("POST", "/faults", {"faults": ["delay"]})).status == 200


@pytest.mark.asyncio
async def test_with_a_token_faults_cannot_be_switched_without_it() -> None:
    async with serving(http_token=TOKEN) as site:
        assert (await site.ask("POST", "/faults", {"faults": ["delay"]})).status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert (await site.ask("GET", "/faults", headers=headers)).document == {"faults": []}


@pytest.mark.asyncio
async def test_a_fault_of_a_path_does_not_get_around_the_token() -> None:
    async with serving(http_token=TOKEN, faults=("status_500",)) as site:
        assert (await site.ask("GET", "/status")).status == 401


@pytest.mark.asyncio
async def test_the_configuration_shows_what_was_asked_for() -> None:
    async with serving(
        worker_reap_timeout_s=30.0,
        worker_registration_grace_s=40.0,
        session_ttl_s=50.0,
        l1_write_ttl_s=60,
        l1_read_ttl_s=70,
        eviction_trigger_watermark=0.5,
        eviction_ratio=0.25,
    ) as site:
        document = (await site.ask("GET", "/config")).document
        server, memory = document["mp"], document["storage_manager"]
        assert server["worker_reap_timeout_seconds"] == 30
        assert server["worker_registration_grace_seconds"] == 40
        assert server["session_ttl_seconds"] == 50
        assert memory["l1_manager_config"] == {"write_ttl_seconds": 60, "read_ttl_seconds": 70}
        assert memory["eviction_config"] == {
            "eviction_policy": "LRU",
            "trigger_watermark": 0.5,
            "eviction_ratio": 0.25,
        }
        assert document["http"]["asks_for_token"] is False
        status = (await site.ask("GET", "/status")).document
        assert status["worker_liveness"]["reap_timeout_seconds"] == 30
        assert status["worker_liveness"]["registration_grace_seconds"] == 40
        assert status["storage_manager"]["l1_manager"]["write_ttl_seconds"] == 60
        assert status["storage_manager"]["l1_manager"]["memory_usage_ratio"] == 0.0
        evicting = status["storage_manager"]["l1_eviction_controller"]
        assert evicting.items() >= memory["eviction_config"].items()
        assert status["storage_manager"]["l1_manager"]["read_ttl_seconds"] == 70


@pytest.mark.asyncio
async def test_the_eviction_options_reach_the_cache() -> None:
    async def held(**fields: Any) -> int:
        async with serving(l1_bytes=10 * 4096, **fields) as site, engine_of(site) as engine:
            for number in range(6):
                assert await engine.store(1, f"r{number}", token_ids=[number] * 32)
            status = (await site.ask("GET", "/status")).document
            count: int = status["storage_manager"]["l1_manager"]["total_object_count"]
            return count

    assert await held() == 6
    # From the fourth store on, half of what is there goes first.
    options = {"eviction_trigger_watermark": 0.3, "eviction_ratio": 0.5}
    assert await held(**options) == 3


HEALTHY_PARTS = (
    "prefetch_controller",
    "l2_eviction_controller",
    "l1_manager",
    "store_controller",
    "l1_eviction_controller",
)
"""What 0.5.6 says `is_healthy` of, beside its tiers; of all but l1_manager `thread_alive` too."""


@pytest.mark.asyncio
async def test_the_status_says_of_the_same_parts_as_a_real_one_that_they_are_well() -> None:
    async with serving(l2=("mock://1/",)) as site:
        status = (await site.ask("GET", "/status")).document
        storage = status["storage_manager"]
        for name in HEALTHY_PARTS:
            assert storage[name]["is_healthy"] is True
            assert storage[name].get("thread_alive", True) is True
            if f"{name}s" in storage:
                assert storage[f"{name}s"] == {"_default": storage[name]}
        assert [tier["is_healthy"] for tier in storage["l2_adapters"]] == [True]
        assert storage["is_healthy"] is status["is_healthy"] is True
        assert read_health(status).bad == ()
        # The whole, storage_manager, five parts with four threads, and the tier.
        assert read_health(status).said == 12


async def is_well(site: Site) -> None:
    answer = await site.ask("GET", "/status")
    assert (answer.status, answer.document["is_healthy"]) == (200, True)


async def raw(site: Site, data: bytes, *, more: bool = False) -> bytes:
    """Send bytes and return what comes until the server closes, or has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.http_port)
    try:
        writer.write(data)
        await writer.drain()
        if not more:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(1 << 16), WITHIN_S)
    except ConnectionError:
        return b""
    finally:
        writer.close()


HEAD = b"POST /cache/clear HTTP/1.1\r\nHost: x\r\n"

UNFINISHED = [
    b"GET\r\n",
    HEAD,
    HEAD + b"Content-Length: 10\r\n\r\n{}",  # the client goes in the middle of its body
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}",
]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [
        *UNFINISHED,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),  # TLS
        b"GET\r\n\r\n",
        b"GET /status HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /status HTTP/1.1\r\n" + b"A: b\r\n" * 50_000 + b"\r\n",
        b"GET /%zz%00\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /cache/objects?page_size=%ff&tier=%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n{}",
        HEAD + b"Content-Length: 1e3\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        HEAD + b"Content-Length: 1\r\n\r\n{}GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
        HEAD + b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        HEAD + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Encoding: zstd\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Expect: the unexpected\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Authorization: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Type: application/json; charset=klingon\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=lambda data: repr(data[-40:]) if len(data) < 300 else f"{len(data)} bytes",
)
async def test_malformed_http_is_no_reason_to_fall_over(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    # Who closes its side first is not answered, and what is wrong then is not seen.
    async with serving() as site:
        seen = await raw(site, data, more=data not in UNFINISHED)
        assert seen.startswith(b"HTTP/1.") or data in UNFINISHED
        assert b"HTTP/1.1 5" not in seen
        assert b"HTTP/1.0 5" not in seen
        assert b"Traceback" not in seen
        await is_well(site)
        assert all(len(line) < 500 and "\n" not in line for line in site.lines)
    assert not caplog.records, "what is logged goes to stderr, with its traceback"


@pytest.mark.asyncio
async def test_content_encoding_is_not_heeded(site: Site) -> None:
    """As by the real server (0.5.6), which reads a plain body whatever the header says."""

    for coding in ("gzip", "deflate", "br", "zstd", "x"):
        headers = {"Content-Encoding": coding}
        answer = await site.ask("POST", "/cache/clear", data=b"{}", headers=headers)
        assert answer.status == 200, coding
        packed = gzip.compress(b"{}")
        answer = await site.ask("POST", "/cache/clear", data=packed, headers=headers)
        assert answer.status == 422, coding


@pytest.mark.asyncio
async def test_who_sends_half_a_head_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchserver.refserver.front.http.HEADERS_WITHIN_S", 0.2)

    async with serving() as site:
        for head in (b"", HEAD, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.http_port)
            writer.write(head)
            rest = await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
            assert rest.count(b"HTTP/1.1 200") == head.count(b"GET")
        await is_well(site)


@pytest.mark.asyncio
async def test_connections_that_wait_make_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchserver.refserver.front.http.connection_limit", lambda: 4)

    async with serving() as site, AsyncExitStack() as stack:
        idle = []
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.http_port)
            stack.callback(writer.close)
            writer.write(HEAD + b"Content-Length: 9\r\n\r\n{")
            idle.append(reader)
        await is_well(site)
        for reader in idle[:16]:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""


@pytest.mark.asyncio
@pytest.mark.parametrize(("limit", "status"), [("MAX_BODY_BYTES", 413), ("MAX_BODIES_BYTES", 429)])
async def test_bodies_have_limits(limit: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"benchserver.refserver.front.bodies.{limit}", 100)

    async with serving() as site:
        answers = [await site.ask("POST", "/faults", data=b" " * size) for size in (101, 100, 101)]
        assert [answer.status for answer in answers] == [status, 400, status]


@pytest.mark.asyncio
async def test_json_of_brackets_alone_is_not_decoded(site: Site) -> None:
    answer = await site.ask("POST", "/faults", data=b"[" + b"[]," * 100_000 + b"[]]")
    assert answer.status == 400
    assert "brackets" in answer.document["detail"]


@pytest.mark.asyncio
async def test_a_body_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchserver.refserver.front.bodies.BODY_WITHIN_S", 0.05)

    async with serving() as site:
        seen = await raw(site, HEAD + b"Content-Length: 10\r\n\r\n{", more=True)
        assert seen.startswith(b"HTTP/1.1 408 ")
        await is_well(site)


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path"), POSTS)
async def test_hostile_bodies(site: Site, method: str, path: str) -> None:
    bodies = [
        b"",
        b"\x00",
        b"\xff\xfe\xfd",
        b"NaN",
        b"Infinity",
        b"nul",
        b'"\\ud800"',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"9" * 10_000,
        b"-0",
        b"1e999",
        b'{"keys":[[]]}',
        b'{"block_ids":[' + b"9" * 4000 + b'],"chunk_size":1}',
        b'{"instance_id":' + b"9" * 4000 + b',"block_ids":[1],"chunk_size":1}',
        b'{"tier":"\\ud800","force":true}',
        b'{"faults":["\\ud800"]}',
        b'{"faults":["' + b"x" * 100_000 + b'"]}',
        b'{"keys":[{"chunk_hash_hex":"00","model_name":"\\ud800","kv_rank":1}],"tier":"l1"}',
        b"{}" + b" " * 1000 + b"x",
    ]
    for body in bodies:
        answer = await site.ask(method, path, data=body)
        assert answer.status < 500 or answer.status == 503, (body[:80], answer)
        assert len(json.dumps(answer.document)) < 2000
    too_long = await site.ask(method, path, data=BytesIO(b" " * (17 << 20)))
    assert too_long.status == 413
    await is_well(site)


ints = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**63, 2**64, 10**400])
scalars = st.none() | st.booleans() | ints | st.floats() | st.text(max_size=8)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return good | good | good | junk


object_names = st.fixed_dictionaries(
    {},
    optional={
        "chunk_hash_hex": mostly(st.binary(max_size=32).map(bytes.hex)),
        "model_name": mostly(st.sampled_from(["m", "", "a@b"])),
        "kv_rank": mostly(ints),
        "object_group_id": mostly(st.integers(-1, 3)),
        "cache_salt": mostly(st.sampled_from(["", "s", "/", "x" * 200])),
    },
)
fault_texts = st.sampled_from(["delay", "delay@2", "flip_byte:layer=1@3+", "lost_reply", "x", ""])
BODIES: dict[str, st.SearchStrategy[Any]] = {
    "/cache/clear": st.fixed_dictionaries(
        {},
        optional={
            "tier": mostly(st.sampled_from(["l1", "l2", "all", "x"])),
            "force": mostly(st.booleans()),
        },
    ),
    "/cache/checksums": st.fixed_dictionaries(
        {},
        optional={
            "block_ids": mostly(st.lists(ints, max_size=4)),
            "chunk_size": mostly(ints),
            "instance_id": mostly(st.integers(0, 2)),
            "layerwise": mostly(st.booleans()),
        },
    ),
    "/faults": st.fixed_dictionaries(
        {}, optional={"faults": mostly(st.lists(mostly(fault_texts), max_size=3))}
    ),
    "/cache/objects": st.fixed_dictionaries(
        {},
        optional={
            "keys": mostly(st.lists(mostly(object_names), max_size=3)),
            "tier": mostly(st.sampled_from(["l1", "l2", "all"])),
            "force": mostly(st.booleans()),
            "adapter": mostly(st.sampled_from(["fs", "mock"])),
        },
    ),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes]:
    method, path = draw(st.sampled_from(POSTS))
    text = json.dumps(draw(mostly(BODIES[path]))).encode()
    cut = draw(st.none() | st.integers(0, len(text)))
    return method, path, text if cut is None else text[:cut] + draw(st.binary(max_size=3))


@settings(max_examples=40, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=12))
def test_any_body_is_answered(sequence: list[tuple[str, str, bytes]]) -> None:
    asyncio.run(_are_answered(sequence))


async def _are_answered(sequence: list[tuple[str, str, bytes]]) -> None:
    async with serving() as site:
        for method, path, body in sequence:
            answer = await site.ask(method, path, data=body)
            assert answer.status < 500 or answer.status == 503, (method, path, body, answer)
            assert isinstance(answer.document, dict)
            if answer.status >= 400:
                assert set(answer.document) == {"detail"}
        await is_well(site)


@pytest.mark.asyncio
async def test_no_request_walks_through_a_world_that_nobody_has(site: Site) -> None:
    """Found by scripts/fuzz_server: END_SESSION and FREE_LOOKUP_LOCKS counted to 2**60."""

    async with engine_of(site) as engine:
        assert await engine.store(1)
        assert await engine.lookup(1, "r") == 1
        wide = key(1, "r", world_size=2**60, worker_id=None)
        await engine.give_up(Op.FREE_LOOKUP_LOCKS, wide, 1)
        await engine.give_up(Op.PREPARE_STORE, key(1, "w", world_size=2**60), 1)
        await engine.call(Op.END_SESSION, "w")
    await is_well(site)
