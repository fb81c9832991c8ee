"""Objects in memory, in buffers that are used again."""

from __future__ import annotations

import pytest

from benchserver.refserver.tiers.mock.blobs import Blobs


def test_buffers_are_used_again_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchserver.refserver.tiers.mock.blobs.MAX_SPARE_BYTES", 2500)
    blobs = Blobs()

    def spare_after_dropping(*sizes: int) -> int:
        for blob in [blobs.new(nbytes) for nbytes in sizes]:
            blobs.drop(blob)
        return blobs.spare_bytes

    assert spare_after_dropping(1000) == 1000
    blob = blobs.new(1000)
    assert blobs.spare_bytes == 0
    blobs.drop(blob)
    assert blobs.new(1000).data is blob.data
    assert spare_after_dropping(1000, 1000, 1000) == 2000, "no more than the limit"
    assert spare_after_dropping(400) == 2400
    assert spare_after_dropping(300) == 300, "other sizes go"
    assert spare_after_dropping(2501) == 0
