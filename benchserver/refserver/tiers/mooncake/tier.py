"""`mooncake://MASTER?metadata=URL`: a Mooncake Store, shared by all who speak to one master.

The objects lie in the memory, the *segments*, of the master's clients, this tier among them: it
mounts `segment_gb` of its own.  With `segment_gb=0` it mounts none and uses that of the others,
and what it stored outlives it.  `MooncakeProcess` runs the library in a process beside this one;
objects pass through `buffer_gb` of memory that both have mapped.

What is stored is framed as in a file of `fs://`, so that a read gives what was written under that
very key, or a miss.  This is needed: Mooncake replaces an object in place, and every eighth
read by another process meanwhile gave parts of both (0.3.13.post1).  Such a read cannot be told
from damage.  It is a miss and the object stays, and the next write of that key replaces it.  Calls
of this tier on one object never overlap.

A write is acknowledged when its object is in a segment and can be found; nothing is on a disk, so
`flush` has nothing to do.  A full store evicts by itself, but nothing that was read or probed in
the last 10 s; where it has no room even so, a write fails.

Facts of 0.3.13.post1, seen on loopback (return values: `codes`):

- With a master that was killed calls fail after at most 4.6 s (-900); with one that has stopped
  (SIGSTOP) after the library's RPC limit, here 5 s (-901).  A master that is started again at the
  same place is found again within 2 s, with nothing in it.
- A client that is killed keeps its objects listed for 10 s, in which reads fail (-800).
- Protocol `tcp` is what was tried.  A `rdma` without a device is set up without an error.
- A client listens on two ports of all interfaces, `MC_TCP_BIND_ADDRESS` or not, and tells others
  the address of the first interface that is up.  `mooncake_master` keeps its RPC and metrics
  ports to the addresses it is told; its HTTP metadata server says so and listens on all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.config import MooncakeConfig
from benchserver.refserver.tiers.framing import (
    FORMAT_VERSION,
    MAX_KEY_BYTES,
    FrameError,
    check_header,
    check_payload,
    header_bytes,
    header_of,
)
from benchserver.refserver.tiers.keyname import key_bytes, name_of
from benchserver.refserver.tiers.lru import Lru
from benchserver.refserver.tiers.mooncake.codes import ABSENT, NOT_READY, meaning_of
from benchserver.refserver.tiers.mooncake.deadline import within
from benchserver.refserver.tiers.mooncake.process import MooncakeProcess
from benchserver.refserver.tiers.mooncake.staging import Staging
from benchserver.refserver.tiers.threads import TierThreads
from benchserver.refserver.tiers.tier import (
    TierError,
    TierMissError,
    TierStats,
    check_size,
    closed_error,
    counted_read,
    counted_write,
)

CALL_S = 10.0
"""Of a read, a write or a probe, waiting for the buffer included."""

COPY_THREADS = 2
"""More do not copy faster than the memory does."""

PROBE_AT_ONCE = 1000
"""Names in one call: what a packet has room for."""

MAX_KNOWN = 1 << 18
"""Objects that the numbers remember; some 50 MB of names."""


class MooncakeTier:
    """Objects in the store.  Opening blocks, and raises UsageError or FatalError."""

    name = "mooncake"
    verifiable = True

    def __init__(self, config: MooncakeConfig) -> None:
        self._stats = TierStats()
        self._known: Lru[str, int] = Lru()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = True
        self._staging = Staging(config.buffer_bytes)
        try:
            self._client = MooncakeProcess(config, self._staging)
        except BaseException:
            self._staging.close()
            raise
        self._threads = TierThreads(COPY_THREADS, "mooncake-tier-copy")

    @property
    def is_healthy(self) -> bool:
        """Tell whether the process that holds the store lives."""
        return self._client.is_running

    @property
    def stats(self) -> TierStats:
        """Return a copy of the numbers as they are now.

        `objects` and `used_bytes` are what this tier has written or read and not found missing
        since; what the store has evicted or others have stored it cannot know.
        """
        return replace(
            self._stats,
            objects=len(self._known),
            used_bytes=self._known.used_bytes,
            queued=self._busy,
        )

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        """Return how many of the leading keys are there; the store keeps those for 10 s."""
        self._check_open()
        names = [_store_name(key_bytes(key)) for key in keys]
        for start in range(0, len(names), PROBE_AT_ONCE):
            asked = names[start : start + PROBE_AT_ONCE]
            with self._at_work():
                codes = await within(CALL_S, "the probe", self._client.call("exist", names=asked))
            for offset, code in enumerate(codes):
                if code in (0, ABSENT, NOT_READY):
                    self._known.drop(asked[offset])
                    return start + offset
                if code != 1:
                    raise TierError(meaning_of(code))
        return len(names)

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        """Fill `out` with the object; `prefetch` makes no difference here."""
        encoded_key = key_bytes(key)
        with counted_read(self._stats, out.nbytes), self._at_work():
            await within(CALL_S, "the read", self._read(encoded_key, out.cast("B")))

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        """Replace the object; on return the new one is in the store, and everybody finds it."""
        encoded_key = key_bytes(key)
        if len(encoded_key) > MAX_KEY_BYTES:
            raise TierError(f"a key of {len(encoded_key)} bytes, expected at most {MAX_KEY_BYTES}")
        with counted_write(self._stats, data.nbytes), self._at_work():
            await within(CALL_S, "the write", self._write(encoded_key, data.cast("B")))

    async def flush(self) -> None:
        """Return at once: what was acknowledged is in the store."""
        self._check_open()

    async def close(self) -> None:
        """Wait for what is under way, unmount the segment, and end the process."""
        if not self._open:
            return
        self._open = False
        await self._idle.wait()
        self._client.hang_up()
        await self._threads.run(self._client.end)
        await self._threads.close()
        self._staging.close()

    async def _read(self, encoded_key: bytes, out: memoryview) -> None:
        name = _store_name(encoded_key)
        lease = await self._staging.lend(header_bytes(encoded_key) + out.nbytes)
        try:
            size = await self._client.call("read", lease=lease, name=name)
            if size in (ABSENT, NOT_READY):
                self._known.drop(name)
                raise TierMissError(meaning_of(size))
            if size < 0:
                raise TierError(meaning_of(size))
            try:
                await self._threads.run(_unpack, lease.view, size, encoded_key, out)
            except FrameError as error:
                self._stats.corrupt += 1
                raise TierMissError(f"{name}: {error}") from error
            self._remember(name, size)
        finally:
            lease.release()

    async def _write(self, encoded_key: bytes, data: memoryview) -> None:
        name = _store_name(encoded_key)
        lease = await self._staging.lend(header_bytes(encoded_key) + data.nbytes)
        try:
            await self._threads.run(_pack, lease.view, encoded_key, data)
            code = await self._client.call("write", lease=lease, name=name)
            if code:
                raise TierError(f"{meaning_of(code)}; not stored")
            self._remember(name, lease.nbytes)
        finally:
            lease.release()

    def _remember(self, name: str, size: int) -> None:
        self._known.put(name, size, size)
        if len(self._known) > MAX_KNOWN:
            oldest = self._known.oldest()
            if oldest is not None:
                self._known.drop(oldest)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Count a call while it lasts."""
        self._check_open()
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    def _check_open(self) -> None:
        if not self._open:
            raise closed_error(self.name)


def _store_name(encoded_key: bytes) -> str:
    """Return an object's name in a store that others may use too."""
    return f"bench-server-v{FORMAT_VERSION}/{name_of(encoded_key)}"


def _pack(frame: memoryview, encoded_key: bytes, data: memoryview) -> None:
    """Put an object and its header into memory."""
    start = header_bytes(encoded_key)
    _copy(frame[start:], data)
    # Of the copy: what is stored is then what the header says, whatever the writer does.
    frame[:start] = header_of(encoded_key, frame[start:])


def _unpack(frame: memoryview, size: int, encoded_key: bytes, out: memoryview) -> None:
    """Fill `out` from an object of `size` bytes in the store.

    Raises FrameError if it is not what was written, TierError if it has another size than `out`.
    """
    start = header_bytes(encoded_key)
    if size > frame.nbytes:
        check_size(size - start, out)
    if size < start:
        raise FrameError("the header is cut off")
    digest, payload_bytes = check_header(bytes(frame[:start]), encoded_key)
    if size != start + payload_bytes:
        raise FrameError(f"{size} bytes, the header says {start + payload_bytes}")
    check_size(payload_bytes, out)
    _copy(out, frame[start:])
    check_payload(out, digest)


def _copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes without Python's lock."""
    np.copyto(np.frombuffer(target, dtype=np.uint8), np.frombuffer(source, dtype=np.uint8))
