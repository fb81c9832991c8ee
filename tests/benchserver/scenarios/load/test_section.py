"""A load's part of the reports."""

from __future__ import annotations

import pytest

from benchserver.scenarios.load.section import server_hits, server_text, share_verified
from benchserver.scenarios.load.series import SERVICE
from benchserver.scenarios.load.totals import Totals
from protocol.counters import Counters
from tests.benchserver.scenarios.load.conftest import MakeLoad
from tests.benchserver.scenarios.load.test_l1 import with_l1


@pytest.mark.asyncio
async def test_the_section_says_what_was_asked_and_what_came(make_load: MakeLoad) -> None:
    loaded = make_load(workload="shared-prefix:50", requests=5, concurrency=1)
    await loaded.play()
    _, section = loaded.stage.book.sections()
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
    service = loaded.stage.measures.latencies[SERVICE].summary()
    assert service is not None
    mean = service.mean_ms * 5 / 1000 / document["duration_s"]
    assert document["with_server_mean"] == pytest.approx(mean)
    assert 0 < mean <= 1
    assert texts[2] == (
        f"  The server had {mean:.2f} of 1 requests at once on average; the rest of the time was "
        "ours, or the prefill's"
    )
    at = texts.index("  Hits: 8 of 20 (40.0%) chunks, 256 of 640 (40.0%) tokens")
    assert texts[at + 1 : at + 4] == [
        "    by a cache that never forgets: 8 of 20 (40.0%) chunks, 256 of 640 (40.0%) tokens",
        "    by an LRU cache as large as L1: the server does not say how many chunks its L1 holds",
        "    by the server's own count: it does not say",
    ]
    off = "the server's digests were not compared (--digests off)"
    assert f"  Verified (--verify all): every byte of 100.0% of the hits; {off}" in texts
    assert document["digests"] == "off"


@pytest.mark.parametrize(
    ("goal", "good", "text"),
    [("response<1s", 5, "5 of 5 (100.0%)"), ("lookup<1us", 0, "0 of 5 (0.0%), 0.00/s")],
)
@pytest.mark.asyncio
async def test_goodput_is_counted_if_there_is_a_goal(
    make_load: MakeLoad, goal: str, good: int, text: str
) -> None:
    loaded = make_load(requests=5, goal=goal)
    await loaded.play()
    _, section = loaded.stage.book.sections()
    document = section.document
    assert document["good_share"] == good / 5
    assert document["goodput_per_s"] == pytest.approx(good / document["duration_s"])
    assert any(line.text.startswith(f"  Goodput: {text}") for line in section.lines)


@pytest.mark.asyncio
async def test_without_a_goal_there_is_no_goodput(make_load: MakeLoad) -> None:
    loaded = make_load(requests=2)
    await loaded.play()
    _, section = loaded.stage.book.sections()
    assert (section.document["goodput_per_s"], section.document["good_share"]) == (None, None)
    assert not any("Goodput" in line.text for line in section.lines)


@pytest.mark.asyncio
async def test_what_was_planned_and_not_sent_is_said(make_load: MakeLoad) -> None:
    loaded = make_load(rate="1000", duration_s=0.5, requests=None)
    await loaded.play()
    _, section = loaded.stage.book.sections()
    requests = section.document["requests"]
    assert requests["planned"] == 500 == requests["done"] + requests["unfinished"]
    measurement = section.document["measurement"]
    assert measurement["valid"] is False
    assert section.document["loop"] == "open"
    assert section.document["rate_asked_per_s"] == pytest.approx(1000, rel=0.01)


def test_without_a_hit_no_share_is_verified() -> None:
    assert share_verified(Totals(begin_ns=0)) is None
    assert share_verified(Totals(begin_ns=0, hits_read=4, hits_verified=1)) == 0.25


@pytest.mark.asyncio
async def test_ideal_hits_stand_beside_those_that_were_measured(make_load: MakeLoad) -> None:
    loaded = make_load(workload="churn:2", requests=40, concurrency=1)
    with_l1(loaded.stage, 8 * loaded.stage.crews[0].geometry.chunk_bytes)
    await loaded.play()
    _, section = loaded.stage.book.sections()
    hits = section.document["hits"]
    # Four requests of four chunks are the working set, of which L1 would hold two: the script's
    # server forgets nothing.
    assert hits["ideal_infinite"] == hits["measured"]
    assert hits["ideal_infinite"]["chunks"] == 36 * 4
    assert (hits["ideal_infinite_bound"], hits["ideal_lru_missing"]) == ("", "")
    assert hits["ideal_lru"]["capacity_chunks"] == 8
    assert 0.3 < hits["ideal_lru"]["ratio"] < 0.6
    told = f"    by an LRU cache as large as L1: {hits['ideal_lru']['chunks']} of 160 ("
    assert any(line.text.startswith(told) for line in section.lines)


@pytest.mark.asyncio
async def test_a_warm_up_fills_ideal_caches_and_is_not_counted(make_load: MakeLoad) -> None:
    loaded = make_load(
        workload="churn:1,l1=1MiB", rate="10", duration_s=10.0, warmup_s=5.0, requests=None
    )
    await loaded.play()
    _, section = loaded.stage.book.sections()
    measured, ideal = (section.document["hits"][name] for name in ("measured", "ideal_infinite"))
    assert section.document["requests"]["warmup"] == 50
    assert measured == ideal


def test_the_server_has_a_count_of_its_own_or_says_nothing() -> None:
    since = Counters(asked_tokens=400, hit_tokens=100, hit_l1_tokens=90, hit_l2_tokens=10)
    assert server_hits(since) == {
        "asked_tokens": 400,
        "tokens": 100,
        "l1_tokens": 90,
        "l2_tokens": 10,
        "ratio": 0.25,
    }
    assert server_text(since) == "    by the server's own count: 100 of 400 (25.0%) tokens"
    for nothing in (None, Counters()):
        assert server_hits(nothing) is None
        assert server_text(nothing) == "    by the server's own count: it does not say"
