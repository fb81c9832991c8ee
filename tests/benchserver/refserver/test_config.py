"""What the server is asked for: one line for each mistake, and no token that shows."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.errors import UsageError
from benchserver.refserver.config import ServerConfig, spoken_releases
from benchserver.refserver.defaults import DEFAULT_RELEASE


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"l1_bytes": 0}, "--l1-size-gb gives 0 bytes"),
        ({"host": ""}, "--host is ''"),
        ({"http_host": "a b"}, "--http-host is 'a b'"),
        ({"http_host": "a\0b"}, "--http-host is 'a.x00b'"),
        ({"host": "\u00e9"}, "--host is"),
        ({"port": 65536}, "--port is 65536"),
        ({"http_port": -1}, "--http-port is -1"),
        ({"chunk_size": 0}, "--chunk-size is 0"),
        ({"transfer_mode": "both"}, "--supported-transfer-mode is 'both'"),
        ({"shm_name": "a/b"}, "--shm-name is 'a/b'"),
        ({"session_ttl_s": 0.0}, "--session-ttl-seconds is 0.0"),
        ({"l1_write_ttl_s": 0}, "--l1-write-ttl-seconds is 0"),
        ({"l1_read_ttl_s": -1}, "--l1-read-ttl-seconds is -1"),
        ({"l1_read_ttl_s": 10**9}, "--l1-read-ttl-seconds is 1000000000"),
        ({"worker_reap_timeout_s": -1.0}, "--worker-reap-timeout-seconds is -1.0"),
        ({"worker_reap_timeout_s": 0.5}, "--worker-reap-timeout-seconds is 0.5"),
        ({"worker_reap_timeout_s": float("nan")}, "--worker-reap-timeout-seconds is nan"),
        ({"worker_registration_grace_s": 119.0}, "--worker-registration-grace-seconds is 119.0"),
        ({"eviction_trigger_watermark": 1.1}, "--eviction-trigger-watermark is 1.1"),
        ({"eviction_ratio": float("nan")}, "--eviction-ratio is nan"),
        ({"l2": ("mock://1/",), "l2_write": "back"}, "--l2-write is 'back'"),
        ({"l2_write": "evict"}, "there is no L2"),
    ],
)
def test_bad_configurations(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ServerConfig(**{"l1_bytes": 1 << 20, **fields})


@pytest.mark.parametrize("token", ["secret token", "secret\n", "s\u00e9cret", "secret" * 1000])
def test_a_bad_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(UsageError, match="the HTTP token must be") as caught:
        ServerConfig(l1_bytes=1 << 20, http_token=token)
    assert "cret" not in str(caught.value)


def test_a_configuration_does_not_show_its_token() -> None:
    assert "cret" not in repr(ServerConfig(l1_bytes=1 << 20, http_token="secret"))


def test_only_engine_driven_servers_have_a_pool() -> None:
    def pool(mode: Any) -> str:
        return ServerConfig(l1_bytes=4096, transfer_mode=mode, shm_name="x").pool_name

    assert [pool(m) for m in ("auto", "engine_driven", "lmcache_driven")] == [
        "lmcache_l1_pool_x",
        "lmcache_l1_pool_x",
        "",
    ]


SPOKEN = spoken_releases()


def test_the_default_is_among_the_releases() -> None:
    assert DEFAULT_RELEASE in SPOKEN
    assert SPOKEN[-1] == "0.4.6"


@pytest.mark.parametrize("release", ["", "0.4.5", "0.5.66", "v0.5.6", "0.5.6-embedded", "\n"])
def test_a_release_that_cannot_be_spoken(release: str) -> None:
    with pytest.raises(UsageError, match=r"^--as is .*, expected one of 0\.5\.7rc2, ") as caught:
        ServerConfig(l1_bytes=1 << 20, release=release)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "changes",
    [{"transfer_mode": "engine_driven"}, {"release": "0.5.5"}, {"release": "0.4.6"}],
)
def test_gpus_are_for_modes_and_releases_that_map_them(changes: dict[str, Any]) -> None:
    ServerConfig(l1_bytes=1 << 16, **changes)
    with pytest.raises(UsageError, match=r"^--gpu with --as 0.*GPU tensors are mapped in"):
        ServerConfig(l1_bytes=1 << 16, gpu=True, **changes)
    assert ServerConfig(l1_bytes=1 << 16).serves_cuda
