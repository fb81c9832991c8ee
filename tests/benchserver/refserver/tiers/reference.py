"""The plainest tier that there can be, and wrong ones that the conformance suite must catch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchserver.refserver.objectkey import ObjectKey
from benchserver.refserver.tiers.tier import (
    TierMissError,
    TierStats,
    check_size,
    closed_error,
    counted_read,
    counted_write,
)


class DictTier:
    """Objects in a dict."""

    name = "dict"
    verifiable = True

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, bytes] = {}
        self.counts = TierStats()
        self.open = True

    @property
    def is_healthy(self) -> bool:
        return self.open

    @property
    def stats(self) -> TierStats:
        used_bytes = sum(map(len, self.objects.values()))
        return replace(self.counts, objects=len(self.objects), used_bytes=used_bytes)

    async def probe(self, keys: Sequence[ObjectKey]) -> int:
        self.check_open()
        missing = [offset for offset, key in enumerate(keys) if key not in self.objects]
        return min(missing, default=len(keys))

    async def read(self, key: ObjectKey, out: memoryview, *, prefetch: bool = False) -> None:
        with counted_read(self.counts, out.nbytes):
            self.check_open()
            if key not in self.objects:
                raise TierMissError("no such object")
            check_size(len(self.objects[key]), out)
            out[:] = self.objects[key]

    async def write(self, key: ObjectKey, data: memoryview) -> None:
        with counted_write(self.counts, data.nbytes):
            self.check_open()
            self.objects[key] = bytes(data)

    async def flush(self) -> None:
        self.check_open()

    async def close(self) -> None:
        self.open = False

    def check_open(self) -> None:
        if not self.open:
            raise closed_error(self.name)
