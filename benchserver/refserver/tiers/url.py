"""From the URL of an L2 tier to the tier; every mistake is one line that says what is expected.

fs:///DIRECTORY[?capacity_gb=N]
mock://CAPACITY_GB/[?peeking_latency=MS&read_throughput=GBPS&write_throughput=GBPS&data=discard]
mooncake://MASTER_HOST:PORT?metadata=URL[&protocol=tcp&segment_gb=N&buffer_gb=N]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

from benchserver.clock import NS_PER_MS, Clock
from benchserver.errors import UsageError, one_line
from benchserver.refserver.tiers.config import GB, FsConfig, MockConfig, MooncakeConfig, TierConfig
from benchserver.refserver.tiers.tier import Tier

MAX_GB = 1 << 20
MAX_GB_PER_S = Decimal(1 << 20)
"""A pebibyte, and one a second: more than any store that this stands for."""

MIN_GB_PER_S = Decimal("0.000001")
MAX_LATENCY_MS = Decimal(60_000)
"""Beyond these nothing ends while anybody waits for it."""

MIN_BUFFER_GB = Decimal("0.015625")
"""16 MiB: smaller ones have no room for the objects of ordinary models."""

MAX_BUFFER_GB = Decimal(64)
"""Far more than there can be under way at once."""

PROTOCOLS = ("tcp", "rdma")
PAGE_BYTES = 4096
MAX_PORT = 65535

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")
_INTEGER = re.compile(r"[0-9]{1,12}")
_PLACE = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9a-fA-F:.]{2,45}\]):([0-9]{1,5})")
_METADATA = re.compile(rf"http://{_PLACE.pattern}(?:/[A-Za-z0-9._~/-]*)?")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


class _BadUrlError(Exception):
    """What is wrong with a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Url:
    """A URL in parts; `query` holds no name twice."""

    place: str
    path: str
    query: Mapping[str, str]

    def only(self, names: Iterable[str]) -> None:
        """Refuse a parameter that nobody would look at."""
        for name in self.query:
            if name not in names:
                raise _BadUrlError(f"unknown parameter {name!r}, known: {', '.join(names)}")


def parse_tier_url(text: str) -> TierConfig:
    """Return what a URL asks for; raises UsageError before anything is touched."""
    try:
        scheme, url = _split(text)
        if scheme not in _PARSERS:
            raise _BadUrlError(f"unknown scheme {scheme!r}, known: {_KNOWN}")
        return _PARSERS[scheme](url)
    except _BadUrlError as error:
        raise UsageError(f"L2 tier {_shown(text)}: {one_line(error, 240)}") from error


def _shown(text: str) -> str:
    """Return a URL as a message shows it, with what cannot be printed in sight."""
    return repr(one_line(text, 120)) if text.isprintable() else one_line(ascii(text), 120)


def open_tier(text: str, clock: Clock | None = None) -> Tier:
    """Open the tier that a URL names; `clock` None: the machine's, as fine as it can be.

    Blocks while a directory is read or a store is set up.  Raises UsageError, or FatalError for a
    store that cannot be reached.
    """
    config = parse_tier_url(text)
    if isinstance(config, FsConfig):
        from benchserver.refserver.tiers.fs.tier import FsTier

        return FsTier(config)
    if isinstance(config, MooncakeConfig):
        from benchserver.refserver.tiers.mooncake.tier import MooncakeTier

        return MooncakeTier(config)
    from benchserver.refserver.fineclock import FineClock
    from benchserver.refserver.tiers.mock.tier import MockTier

    # The loop's own timers are too coarse for latencies of a millisecond.
    return MockTier(config, FineClock() if clock is None else clock)


def _split(text: str) -> tuple[str, _Url]:
    match = _URL.fullmatch(text)
    if match is None or not text.isprintable():
        raise _BadUrlError(f"expected SCHEME://..., with one of the schemes {_KNOWN}")
    scheme, place, path, query_text = match.groups()
    query: dict[str, str] = {}
    for pair in (query_text or "").split("&") if query_text else ():
        name, equals, value = pair.partition("=")
        if not equals or not name or name in query:
            raise _BadUrlError(f"parameter {pair!r}, expected NAME=VALUE and each name once")
        query[name] = value
    return scheme, _Url(place=place, path=path, query=query)


def _parse_fs(url: _Url) -> FsConfig:
    url.only(("capacity_gb",))
    if url.place:
        raise _BadUrlError("the directory must be absolute, with three slashes: fs:///dir")
    try:
        directory = Path(unquote(url.path, errors="strict"))
    except UnicodeDecodeError as error:
        raise _BadUrlError("the directory is not UTF-8 behind its percent signs") from error
    if "\0" in str(directory) or len(directory.parts) < 2:
        raise _BadUrlError("expected a directory: fs:///dir")
    if "capacity_gb" not in url.query:
        return FsConfig(directory=directory)
    return FsConfig(directory=directory, capacity_bytes=_gigabytes(url.query["capacity_gb"]))


def _parse_mock(url: _Url) -> MockConfig:
    url.only(("peeking_latency", "read_throughput", "write_throughput", "data"))
    if not url.place:
        raise _BadUrlError("the capacity is missing, expected mock://CAPACITY_GB/")
    if url.path not in ("", "/"):
        raise _BadUrlError(f"path {url.path!r}, expected none: mock://CAPACITY_GB/")
    data = url.query.get("data", "keep")
    if data not in ("keep", "discard"):
        raise _BadUrlError(f"data={data!r}, expected keep or discard")
    latency_ms = _number(url, "peeking_latency", "1", "ms", Decimal(0), MAX_LATENCY_MS)
    return MockConfig(
        capacity_bytes=_gigabytes(url.place),
        latency_ns=int(latency_ms * NS_PER_MS),
        read_bytes_per_s=_throughput(url, "read_throughput"),
        write_bytes_per_s=_throughput(url, "write_throughput"),
        keeps_data=data == "keep",
    )


def _parse_mooncake(url: _Url) -> MooncakeConfig:
    url.only(("metadata", "protocol", "segment_gb", "buffer_gb"))
    if not _is_place(_PLACE, url.place):
        raise _BadUrlError(f"master {url.place!r}, expected mooncake://HOST:PORT")
    if url.path not in ("", "/"):
        raise _BadUrlError(f"path {url.path!r}, expected none: mooncake://HOST:PORT?metadata=URL")
    metadata = unquote(url.query.get("metadata", ""))
    if not _is_place(_METADATA, metadata):
        raise _BadUrlError(
            f"metadata={metadata!r}, expected the URL of an HTTP metadata server: "
            "http://HOST:PORT/metadata"
        )
    protocol = url.query.get("protocol", "tcp")
    if protocol not in PROTOCOLS:
        raise _BadUrlError(f"protocol={protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    return MooncakeConfig(
        master=url.place,
        metadata=metadata,
        protocol=protocol,
        segment_bytes=_memory(url, "segment_gb", "1", Decimal(0), Decimal(MAX_GB)),
        buffer_bytes=_memory(url, "buffer_gb", "0.25", MIN_BUFFER_GB, MAX_BUFFER_GB),
    )


def _is_place(pattern: re.Pattern[str], text: str) -> bool:
    """Tell whether a text has the pattern, whose only group is a port."""
    match = pattern.fullmatch(text)
    return match is not None and 1 <= int(match[1]) <= MAX_PORT


def _memory(url: _Url, name: str, default: str, least: Decimal, most: Decimal) -> int:
    """Return a size in bytes, whole pages."""
    size = _number(url, name, default, "GB", least, most)
    return int(size * GB) // PAGE_BYTES * PAGE_BYTES


def _gigabytes(text: str) -> int:
    """Return a capacity in bytes."""
    if not _INTEGER.fullmatch(text) or not 1 <= int(text) <= MAX_GB:
        raise _BadUrlError(f"capacity {text!r}, expected an integer number of GB, 1 to {MAX_GB}")
    return int(text) * GB


def _throughput(url: _Url, name: str) -> int:
    """Return a throughput in bytes a second."""
    return int(_number(url, name, "2", "GB/s", MIN_GB_PER_S, MAX_GB_PER_S) * GB)


def _number(
    url: _Url, name: str, default: str, unit: str, least: Decimal, most: Decimal
) -> Decimal:
    text = url.query.get(name, default)
    if not _NUMBER.fullmatch(text) or not least <= Decimal(text) <= most:
        raise _BadUrlError(f"{name}={text!r}, expected {unit}, {least} to {most}")
    return Decimal(text)


_PARSERS: Mapping[str, Callable[[_Url], TierConfig]] = {
    "fs": _parse_fs,
    "mock": _parse_mock,
    "mooncake": _parse_mooncake,
}
_KNOWN = ", ".join(f"{scheme}://" for scheme in _PARSERS)
