"""URLs that are understood, and one line for each that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.clock import NS_PER_MS, VirtualClock
from benchserver.errors import UsageError
from benchserver.refserver.fineclock import FineClock
from benchserver.refserver.tiers.config import (
    GB,
    UNLIMITED,
    FsConfig,
    MockConfig,
    MooncakeConfig,
    TierConfig,
)
from benchserver.refserver.tiers.mock.tier import MockTier
from benchserver.refserver.tiers.url import open_tier, parse_tier_url

GOOD: dict[str, TierConfig] = {
    "fs:///var/cache": FsConfig(directory=Path("/var/cache"), capacity_bytes=UNLIMITED),
    "fs:///a%20b/c%3f/": FsConfig(directory=Path("/a b/c?")),
    "fs:///d?capacity_gb=7": FsConfig(directory=Path("/d"), capacity_bytes=7 * GB),
    "mock://100/": MockConfig(
        capacity_bytes=100 * GB,
        latency_ns=NS_PER_MS,
        read_bytes_per_s=2 * GB,
        write_bytes_per_s=2 * GB,
        keeps_data=True,
    ),
    "mock://1": MockConfig(capacity_bytes=GB),
    "mock://1/?data=keep": MockConfig(capacity_bytes=GB),
    "mock://3/?peeking_latency=0.25&read_throughput=4&write_throughput=0.5&data=discard": (
        MockConfig(
            capacity_bytes=3 * GB,
            latency_ns=NS_PER_MS // 4,
            read_bytes_per_s=4 * GB,
            write_bytes_per_s=GB // 2,
            keeps_data=False,
        )
    ),
    "mock://1?peeking_latency=0": MockConfig(capacity_bytes=GB, latency_ns=0),
    "mooncake://h.example:50051?metadata=http://127.0.0.1:8080/metadata": MooncakeConfig(
        master="h.example:50051",
        metadata="http://127.0.0.1:8080/metadata",
        protocol="tcp",
        segment_bytes=GB,
        buffer_bytes=GB // 4,
    ),
    "mooncake://[::1]:1/?metadata=http%3A//h:65535&protocol=rdma&segment_gb=0&buffer_gb=0.1": (
        MooncakeConfig(
            master="[::1]:1",
            metadata="http://h:65535",
            protocol="rdma",
            segment_bytes=0,
            buffer_bytes=26_214 * 4096,
        )
    ),
}


@pytest.mark.parametrize("text", GOOD)
def test_good_urls(text: str) -> None:
    assert parse_tier_url(text) == GOOD[text]


BAD = {
    "": "expected SCHEME://..., with one of the schemes fs://, mock://, mooncake://",
    "fs": "expected SCHEME://",
    "fs:/dir": "expected SCHEME://",
    "/dir": "expected SCHEME://",
    "mock://1/#x": "expected SCHEME://",
    "mock://1/\n": "expected SCHEME://",
    "lobster://host": "unknown scheme 'lobster', known: fs://, mock://, mooncake://",
    "FS:///dir": "unknown scheme 'FS'",
    "fs://dir": "three slashes",
    "fs://dir/sub": "three slashes",
    "fs://": "expected a directory",
    "fs:///": "expected a directory",
    "fs:///a%00b": "expected a directory",
    "fs:///a%ff": "not UTF-8",
    "fs:///dir?capacity=1": "unknown parameter 'capacity', known: capacity_gb",
    "fs:///dir?capacity_gb=0": "capacity '0', expected an integer number of GB, 1 to 1048576",
    "fs:///dir?capacity_gb=1.5": "capacity '1.5'",
    "mock://": "the capacity is missing",
    "mock:///": "the capacity is missing",
    "mock:///?peeking_latency=1": "the capacity is missing",
    "mock://x/": "capacity 'x', expected an integer",
    "mock://1.5/": "capacity '1.5', expected an integer",
    "mock://-1/": "capacity '-1', expected an integer",
    "mock://0/": "capacity '0', expected an integer",
    "mock://1e3/": "capacity '1e3', expected an integer",
    "mock://١/": "capacity '١', expected an integer",
    "mock://1048577/": "capacity '1048577'",
    f"mock://{'9' * 5000}/": "capacity '999",
    "mock://user@1/": "capacity 'user@1'",
    "mock://1/path": "path '/path', expected none",
    "mock://1/?latency=1": "unknown parameter 'latency', known: peeking_latency, read_throughput",
    "mock://1/?peeking_latency": "parameter 'peeking_latency', expected NAME=VALUE",
    "mock://1/?=1": "parameter '=1', expected NAME=VALUE",
    "mock://1/?data=keep&": "parameter '', expected NAME=VALUE",
    "mock://1/?data=keep&data=keep": "each name once",
    "mock://1/?data=drop": "data='drop', expected keep or discard",
    "mock://1/?peeking_latency=-1": "peeking_latency='-1', expected ms, 0 to 60000",
    "mock://1/?peeking_latency=60001": "peeking_latency='60001'",
    "mock://1/?peeking_latency=nan": "peeking_latency='nan'",
    "mock://1/?peeking_latency=": "peeking_latency=''",
    "mock://1/?read_throughput=0": "read_throughput='0', expected GB/s, 0.000001 to 1048576",
    "mock://1/?write_throughput=inf": "write_throughput='inf', expected GB/s",
    "mock://1/?write_throughput=1e9": "write_throughput='1e9'",
    "mooncake://": "master '', expected mooncake://HOST:PORT",
    "mooncake://host": "master 'host', expected mooncake://HOST:PORT",
    "mooncake://host:0?metadata=http://h:1": "master 'host:0'",
    "mooncake://host:65536?metadata=http://h:1": "master 'host:65536'",
    "mooncake://a b:1?metadata=http://h:1": "master 'a b:1'",
    "mooncake://h:1": "metadata='', expected the URL of an HTTP metadata server",
    "mooncake://h:1?metadata=h:1": "metadata='h:1', expected the URL",
    "mooncake://h:1?metadata=http://h": "metadata='http://h', expected the URL",
    "mooncake://h:1?metadata=etcd://h:1": "metadata='etcd://h:1', expected the URL",
    "mooncake://h:1/p?metadata=http://h:1": "path '/p', expected none",
    "mooncake://h:1?metadata=http://h:1&protocol=udp": "protocol='udp', expected one of tcp, rdma",
    "mooncake://h:1?metadata=http://h:1&segment=1": "unknown parameter 'segment', known: metadata",
    "mooncake://h:1?metadata=http://h:1&segment_gb=-1": "segment_gb='-1', expected GB, 0 to",
    "mooncake://h:1?metadata=http://h:1&buffer_gb=0": "buffer_gb='0', expected GB, 0.015625 to 64",
    "mooncake://h:1?metadata=http://h:1&buffer_gb=65": "buffer_gb='65', expected GB",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_urls(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_tier_url(text)
    line = str(caught.value)
    assert BAD[text] in line
    assert line.startswith("L2 tier ")
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.asyncio
async def test_a_url_is_opened(tmp_path: Path) -> None:
    tier = open_tier(f"fs://{tmp_path}/new?capacity_gb=1")
    assert (tier.name, tier.verifiable) == ("fs", True)
    assert tier.stats.capacity_bytes == GB
    await tier.close()
    tier = open_tier("mock://5/?data=discard")
    assert (tier.name, tier.verifiable) == ("mock", False)
    assert tier.stats.capacity_bytes == 5 * GB
    await tier.close()
    assert (tmp_path / "new" / "objects-v1").is_dir()


@pytest.mark.asyncio
async def test_the_mock_sleeps_finely_on_a_real_clock_alone() -> None:
    real, virtual = open_tier("mock://1"), open_tier("mock://1", VirtualClock())
    assert isinstance(real, MockTier)
    assert isinstance(virtual, MockTier)
    assert isinstance(real._clock, FineClock)
    assert isinstance(virtual._clock, VirtualClock)
    for tier in (real, virtual):
        await tier.close()


def test_a_line_end_in_a_url_is_in_sight() -> None:
    with pytest.raises(UsageError, match=r"L2 tier 'fs:///a.n': expected SCHEME"):
        parse_tier_url("fs:///a\n")
