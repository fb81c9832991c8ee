"""A load's part of the reports."""

from __future__ import annotations

import pytest

from benchserver.scenarios.load.section import share_verified
from benchserver.scenarios.load.totals import Totals
from tests.benchserver.scenarios.load.conftest import MakeLoad


@pytest.mark.asyncio
async def test_the_section_says_what_was_asked_and_what_came(make_load: MakeLoad) -> None:
    loaded = make_load(workload="shared-prefix:50", requests=5, concurrency=1)
    await loaded.play()
    (section,) = loaded.stage.book.sections()
    document = section.document
    assert section.key == "load"
    assert document["requests"] == {
        "planned": 5,
        "done": 5,
        "failed": 0,
        "unfinished": 0,
        "warmup": 0,
        "too_short": 0,
    }
    assert document["loop"] == "closed"
    assert document["rate_asked_per_s"] is None
    assert document["hits"]["measured"] == {"chunks": 8, "tokens": 256, "ratio": 256 / 640}
    assert document["hits"]["asked"] == {"chunks": 20, "tokens": 640}
    assert (document["verify"], document["share_verified"]) == ("all", 1.0)
    chunk = loaded.stage.crews[0].geometry.chunk_bytes
    assert document["bytes"] == {"stored": 12 * chunk, "retrieved": 8 * chunk}
    texts = [line.text for line in section.lines]
    assert texts[0].endswith("; closed loop, 1 clients x 1 at once")
    assert "  Hits: 8 of 20 chunks (40.0%)" in texts
    assert "  Verified (--verify all): every byte of 100.0% of the hits" in texts


@pytest.mark.asyncio
async def test_what_was_planned_and_not_sent_is_said(make_load: MakeLoad) -> None:
    loaded = make_load(rate="1000", duration_s=0.5, requests=None)
    await loaded.play()
    (section,) = loaded.stage.book.sections()
    requests = section.document["requests"]
    assert requests["planned"] == 500 == requests["done"] + requests["unfinished"]
    measurement = section.document["measurement"]
    assert measurement["valid"] is False
    assert section.document["loop"] == "open"
    assert section.document["rate_asked_per_s"] == pytest.approx(1000, rel=0.01)


def test_without_a_hit_no_share_is_verified() -> None:
    assert share_verified(Totals(begin_ns=0)) is None
    assert share_verified(Totals(begin_ns=0, hits_read=4, hits_verified=1)) == 0.25
