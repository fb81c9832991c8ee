"""What a run refuses before any traffic, and the words in which it does."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.config import (
    RunConfig,
    check_against_l1,
    check_config,
    check_geometry,
    normalize_http_url,
    normalize_rpc_url,
    with_whole_chunk,
)
from benchserver.errors import FatalError, UsageError
from benchserver.options.memory import TransferChoice
from tests.tlsstage import OPENSSL, make_certificate

MakeConfig = Callable[..., RunConfig]

TWO_GROUPS = "(2,64,16,1,8):float16:1;(1,64,16,1,8):float16:1"


def test_the_default_run_is_fine(make_config: MakeConfig) -> None:
    check_config(make_config())
    check_config(make_config(end=None))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_tokens": 0}, "--num-tokens 0 is out of range, expected 1 to"),
        ({"num_tokens": (1 << 24) + 1}, "--num-tokens 16777217 is out of range"),
        ({"tp_size": 0}, "--tp-size 0 is out of range, expected 1 to 256"),
        ({"tp_size": -3}, "--tp-size -3 is out of range"),
        ({"tp_size": 257}, "--tp-size 257 is out of range"),
        ({"start": -1, "end": 1}, "--start -1 is out of range"),
        ({"start": (1 << 40) + 1, "end": None}, "--start 1099511627777 is out of range"),
        ({"end": -1}, "--end -1 is out of range"),
        ({"end": (1 << 40) + 1}, "--end 1099511627777 is out of range"),
        ({"end": 0}, "--end 0 must be greater than --start 0: sequences run from --start up to"),
        ({"start": 5, "end": 5}, "--end 5 must be greater than --start 5"),
        ({"start": 5, "end": 2}, "--end 2 must be greater than --start 5"),
        ({"seed": -1}, "--seed -1 is out of range"),
        ({"seed": 2**63}, "--seed 9223372036854775808 is out of range"),
        ({"seed": 10**400}, "--seed 10000"),
        ({"partial_every": -1}, "--partial-retrieve-every -1 is out of range, expected 0 to"),
        ({"interval_s": -0.5}, "--interval -0.5 is out of range"),
        ({"interval_s": math.nan}, "--interval nan is out of range"),
        ({"interval_s": math.inf}, "--interval inf is out of range"),
        ({"timeout_s": 0.0}, "--timeout 0 is out of range, expected 0.001 to"),
        ({"timeout_s": math.inf}, "--timeout inf is out of range"),
        ({"visible_within_s": -1.0}, "--visible-within -1 is out of range"),
        ({"wait_ready_s": math.nan}, "--wait-ready nan is out of range"),
        ({"model_name": ""}, "--model-name: a model name must not be empty"),
        ({"model_name": "a@b"}, "--model-name: a model name must not contain '@'"),
        ({"cache_salt": "a/b"}, "--cache-salt: a cache salt must not contain '/'"),
        ({"cache_salt": "x" * 129}, "--cache-salt: a cache salt has at most 128 characters"),
        (
            {"transfer": TransferChoice.ENGINE_DRIVEN, "spec": TWO_GROUPS},
            "--transfer-mode engine_driven carries one KV layer group, the shape spec has 2; "
            "use lmcache_driven",
        ),
        (
            {"mode": "gpu", "cuda_ipc": "driver", "transfer": TransferChoice.ENGINE_DRIVEN},
            "--cuda-ipc driver never matters with --transfer-mode engine_driven",
        ),
        ({"num_tokens": 15}, "--num-tokens 15 is less than one block of 16 tokens"),
    ],
)
def test_refusals(make_config: MakeConfig, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_config(make_config(**changes))
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_tokens": 16},
        {"num_tokens": 1 << 24},
        {"tp_size": 256},
        {"start": (1 << 40) - 1, "end": 1 << 40},
        {"seed": 0},
        {"seed": 2**63 - 1},
        {"interval_s": 0.0},
        {"timeout_s": 0.001},
        {"visible_within_s": 0.0},
        {"cache_salt": "x" * 128},
        {"transfer": TransferChoice.LMCACHE_DRIVEN, "spec": TWO_GROUPS},
        {"transfer": TransferChoice.AUTO, "spec": TWO_GROUPS},
    ],
)
def test_the_bounds_themselves_are_fine(make_config: MakeConfig, changes: dict[str, Any]) -> None:
    check_config(make_config(**changes))


@pytest.mark.parametrize(
    ("spec", "tp_size", "mla", "world", "writers", "readers"),
    [
        ("(2,64,16,1,8):float16:1", 1, False, 1, (0,), 1),
        ("(2,64,16,1,8):float16:1", 3, False, 3, (0, 1, 2), 1),
        ("(1,64,16,1,8):float16:1", 1, True, 1, (0,), 1),
        ("(1,64,16,1,8):float16:1", 4, True, 1, (0,), 4),
        (TWO_GROUPS, 2, False, 2, (0, 1), 1),
    ],
)
def test_ranks_that_share_one_kv(
    make_config: MakeConfig,
    spec: str,
    tp_size: int,
    mla: bool,
    world: int,
    writers: tuple[int, ...],
    readers: int,
) -> None:
    config = make_config(spec=spec, tp_size=tp_size)
    assert config.is_mla is mla
    assert config.world_size == world
    assert config.writers == writers
    assert config.readers_per_object == readers


def test_a_chunk_size_that_blocks_do_not_divide(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError) as caught:
        check_geometry(make_config(spec="(2,64,24,1,8):float16:1").geometry(256))
    assert str(caught.value) == (
        "block size 24 does not divide the server's chunk size 256; change BS in "
        "--kvcache-shape-spec, or the server's --chunk-size"
    )


def test_fewer_tokens_than_a_chunk(make_config: MakeConfig) -> None:
    check_geometry(make_config(num_tokens=256).geometry(256))
    with pytest.raises(UsageError, match="--num-tokens 255 is less than one chunk of 256 tokens"):
        check_geometry(make_config(num_tokens=255).geometry(256))


def test_a_pool_that_is_too_small_is_told_the_sum(make_config: MakeConfig) -> None:
    # 2 chunks of 256 tokens are 32 blocks: 32 source + 32 destination + 2 canaries + block 0.
    check_geometry(make_config(num_tokens=767, spec="(2,67,16,1,8):float16:1").geometry(256))
    with pytest.raises(UsageError) as caught:
        check_geometry(make_config(num_tokens=767, spec="(2,66,16,1,8):float16:1").geometry(256))
    assert str(caught.value) == (
        "the pool has 66 blocks (NB), but 2 chunks of 256 tokens need 67: 32 source + "
        "32 destination + 2 canaries + the null block; raise NB or lower --num-tokens"
    )


def test_a_sequence_must_fit_into_the_server_s_l1(make_config: MakeConfig) -> None:
    # A chunk of 256 tokens of K and V, 8 elements of 2 bytes: 8 KiB.
    config = make_config(spec="(2,128,16,1,8):float16:1", tp_size=3, num_tokens=600)
    geometry, ranks = config.geometry(256), config.world_size
    for l1_bytes in (0, 3 * 2 * 8192, 1 << 30):
        check_against_l1(geometry, kv_ranks=ranks, l1_bytes=l1_bytes)
    with pytest.raises(FatalError) as caught:
        check_against_l1(geometry, kv_ranks=ranks, l1_bytes=3 * 2 * 8192 - 1)
    assert str(caught.value) == (
        "the server's L1 holds 49151 bytes, a sequence of 2 chunks on 3 KV ranks needs 49152; "
        "start it with a larger --l1-size-gb, or lower --num-tokens"
    )
    mla = make_config(spec="(1,128,16,1,8):uint8:1", tp_size=3)
    check_against_l1(mla.geometry(256), kv_ranks=mla.world_size, l1_bytes=4096)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("tcp://localhost:5555", "tcp://localhost:5555"),
        ("localhost:5555", "tcp://localhost:5555"),
        ("  10.0.0.1:1 ", "tcp://10.0.0.1:1"),
        ("TCP://Host.Example:65535/", "tcp://host.example:65535"),
        ("[::1]:5555", "tcp://[::1]:5555"),
        ("tcp://[fe80::1]:5555", "tcp://[fe80::1]:5555"),
    ],
)
def test_rpc_urls(text: str, url: str) -> None:
    assert normalize_rpc_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a host and a port"),
        ("localhost", "expected tcp://host:port"),
        (":5555", "expected a host and a port"),
        ("tcp://", "expected a host and a port"),
        ("localhost:", "expected tcp://host:port"),
        ("localhost:0", "expected a host and a port"),
        ("localhost:65536", "Port out of range 0-65535"),
        ("localhost:-1", "Port could not be cast to integer value"),
        ("localhost:5x", "Port could not be cast to integer value"),
        ("localhost:٥٥٥٥", "Port could not be cast to integer value"),
        ("grpc://localhost:5555", "scheme grpc, expected tcp://host:port; a server with"),
        ("http://localhost:5555", "scheme http, expected tcp://host:port"),
        ("ipc:///tmp/x", "expected a host and a port"),
        ("tcp://localhost:5555/x", "expected tcp://host:port"),
        ("tcp://localhost:5555?x=1", "expected tcp://host:port"),
        ("tcp://localhost:5555#x", "expected tcp://host:port"),
        ("tcp://me@localhost:5555", "expected tcp://host:port"),
        ("tcp://:pw@localhost:5555", "expected tcp://host:port"),
        ("tcp://local host:5555", "expected a host and a port"),
        ("tcp://*:5555", "expected a host and a port"),
        ("tcp://local\nhost:5555", "expected a host and a port"),
        ("tcp://höst:5555", "expected a host and a port"),
        ("tcp://[::1:5555", "Invalid IPv6 URL"),
        ("tcp://a..b:5555", "label"),
        (f"tcp://{'a' * 64}:5555", "label"),
    ],
)
def test_bad_rpc_urls(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalize_rpc_url(text)
    assert str(caught.value).startswith("--rpc-url ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8080", "http://localhost:8080"),
        ("localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080/", "http://localhost:8080"),
        ("https://host/prefix/", "https://host/prefix"),
        (" http://[::1]:8080 ", "http://[::1]:8080"),
    ],
)
def test_http_urls(text: str, url: str) -> None:
    assert normalize_http_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "http://:8080",
        "tcp://localhost:8080",
        "file:///etc/passwd",
        "http://localhost:0",
        "http://localhost:65536",
        "http://localhost:8080/?a=b",
        "http://localhost:8080/#a",
        "http://local host",
        "http://höst",
        "http://a..b",
        "http://user@localhost",
    ],
)
def test_bad_http_urls(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--url "):
        normalize_http_url(text)


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_a_usage_error(text: str) -> None:
    for normalize in (normalize_rpc_url, normalize_http_url):
        with contextlib.suppress(UsageError):
            url = normalize(text)
            assert normalize(url) == url
            assert urlsplit(url).hostname


@pytest.mark.parametrize(
    ("transfer", "transport"),
    [
        (TransferChoice.LMCACHE_DRIVEN, "shm"),
        (TransferChoice.LMCACHE_DRIVEN, "inline"),
        (TransferChoice.ENGINE_DRIVEN, "handle"),
    ],
)
def test_a_transport_that_the_mode_never_takes(
    make_config: MakeConfig, transfer: TransferChoice, transport: str
) -> None:
    config = make_config(transfer=transfer, require_transport=transport)
    with pytest.raises(UsageError, match=f"--require-transport {transport} never comes with"):
        check_config(config)


def test_an_unknown_release_is_refused_before_traffic(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError, match=r"--server-release: .*'9.9.9' is not known"):
        check_config(make_config(server_release="9.9.9"))


@pytest.mark.parametrize("token", ["!", "~" * 4096, "a/b+c=="])
def test_tokens(make_config: MakeConfig, token: str) -> None:
    check_config(make_config(http_token=token))
    assert token not in repr(make_config(http_token=token)) or len(token) == 1


@pytest.mark.parametrize("token", ["hunter2 x", "hunter2\n", "hunter2é", "hunter2" * 1000])
def test_what_no_header_can_carry(make_config: MakeConfig, token: str) -> None:
    with pytest.raises(UsageError, match=r"^the HTTP token must be 1 to 4096 ") as caught:
        check_config(make_config(http_token=token))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@host:1", "u:hunter2@host:x", "https://hunter2@", "ftp://hunter2@x/"]
)
def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match=r"^--url must hold no user or password ") as caught:
        normalize_http_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it holds no certificate in PEM form"),
        (b"junk", "it holds no certificate in PEM form"),
        (b"\xff" * 5000, "it holds no certificate in PEM form"),
        (None, "No such file or directory"),
    ],
)
def test_authorities_that_are_none(
    make_config: MakeConfig, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        check_config(make_config(http_url="https://host", http_ca=str(path)))
    assert str(caught.value) == f"--http-ca {path}: {reason}"


@pytest.mark.parametrize("path", ["/", "a\0b", "x" * 5000])
def test_authorities_in_no_file(make_config: MakeConfig, path: str) -> None:
    with pytest.raises(UsageError, match=r"^--http-ca ") as caught:
        check_config(make_config(http_url="https://host", http_ca=path))
    assert str(caught.value).isprintable()


def test_authorities_without_https(make_config: MakeConfig) -> None:
    with pytest.raises(UsageError, match=r"^--http-ca is for an https --url, and that is http:"):
        check_config(make_config(http_ca="ca.pem"))


@pytest.mark.skipif(OPENSSL is None, reason="no openssl to make a certificate with")
def test_an_authority(make_config: MakeConfig, tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "DNS:host")
    check_config(make_config(http_url="HTTPS://host", http_ca=str(made.path)))


@pytest.mark.parametrize("name", ["model_name", "cache_salt"])
def test_names_that_are_no_text(make_config: MakeConfig, name: str) -> None:
    with pytest.raises(UsageError, match="must be valid Unicode"):
        check_config(make_config(**{name: "\udcff"}))


@pytest.mark.parametrize(
    ("given_number", "chunk", "tokens"),
    [(False, 256, 512), (False, 512, 512), (False, 1024, 1024), (True, 1024, 512)],
)
def test_a_chunk_larger_than_the_default_is_taken_whole(
    make_config: MakeConfig, given_number: bool, chunk: int, tokens: int
) -> None:
    config = with_whole_chunk(make_config(num_tokens_given=given_number), chunk)
    assert config.num_tokens == tokens
    assert config.num_tokens_given is (given_number or tokens != 512)


def test_a_block_larger_than_the_default_waits_for_the_servers_chunk(
    make_config: MakeConfig,
) -> None:
    spec = "(2,64,1024,1,8):float16:1"
    check_config(make_config(spec=spec, num_tokens_given=False))
    with pytest.raises(UsageError, match="--num-tokens 512 is less than one block of 1024"):
        check_config(make_config(spec=spec))


@pytest.mark.parametrize("bad", ["\x1b", "\n", "\x00", "\x7f", "\x85", "\u2028"])
@pytest.mark.parametrize(
    ("field", "option"), [("model_name", "--model-name"), ("cache_salt", "--cache-salt")]
)
def test_names_that_would_leave_their_line(
    make_config: MakeConfig, field: str, option: str, bad: str
) -> None:
    with pytest.raises(UsageError, match=f"{option}: a .* must ") as caught:
        check_config(make_config(**{field: f"a{bad}b"}))
    assert str(caught.value).isprintable()
    check_config(make_config(**{field: "модель ü 模型 می‌خواهم"}))
