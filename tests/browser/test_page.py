"""The page of a run as a browser shows it: drawn, quiet, legible, on a desk, a phone and paper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchserver.page.run import html_report
from tests.benchserver.page.documents import LATENCY, check, run_document
from tests.browser import scripts
from tests.browser.chromium import opened, running_chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

EVIL = "</title></svg><script>document.title='was here'</script><img src=http://192.0.2.1/x>"


def failed_run() -> dict[str, Any]:
    """Return the report of a run in which each verdict comes up, with words that fill a line."""
    long = "rank=0 layer=1 " + "x" * 300
    return run_document(
        verdict="invalid",
        checks={
            "content": check("invalid", failed=2, texts=[long, "block 3"]),
            "sessions": check("unknown", unproven=1, texts=["no answer within 10 s"]),
            "digests": check(passed=0, not_evaluated="--digests off"),
            "residue": check(),
        },
        replay="bench-server load --seed 7 " + "y" * 300,
    )


def hostile_run() -> dict[str, Any]:
    """Return a report that a peer has filled with markup, and with what turns or hides text."""
    evil = EVIL + "\0\u202e" + "z" * 10_000
    return run_document(
        server={"version": evil, "rpc_url": evil},
        checks={evil: check("unknown", unproven=1, texts=[evil])},
        latency={evil: LATENCY},
        replay=evil,
        run={evil: {evil: evil}},
        growth={"resources": [{"name": evil, "unit": evil, "samples": [[0, 1], [1, 2]]}]},
        over_time={
            **run_document()["over_time"],
            "series": {evil: [[0, 0, 9], [3, 1, 30]]},
            "bytes": {evil: [[0, 1_000_000], [2, 500_000]]},
        },
    )


PAGES = {
    "load": run_document(),
    "failed": failed_run(),
    "hostile": hostile_run(),
    "nothing": {"format": 1, "verdict": "invalid"},
}


@pytest.fixture(scope="module")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a browser for the tests of this file."""
    with running_chromium(tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the pages of all reports lie."""
    path = tmp_path_factory.mktemp("pages")
    for name, document in PAGES.items():
        (path / f"{name}.html").write_bytes(html_report(document))
    return path


@pytest.mark.asyncio
async def test_every_chart_is_drawn_with_its_data(devtools: str, folder: Path) -> None:
    async with opened(devtools, (folder / "load.html").as_uri()) as page:
        drawn = await page.evaluate(scripts.MARKS)
    assert drawn == {
        "latency": [8, 0],  # four percentiles of two operations
        "heat-0": [2, 1],  # p50 and p99, over the cells
        "units": [1, 0],
        "bytes": [1, 0],
        "failures": [2, 0],
        "hits": [2, 0],
        "growth-0": [1, 0],
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_asks_nobody_and_complains_of_nothing(
    devtools: str, folder: Path, name: str
) -> None:
    url = (folder / f"{name}.html").as_uri()
    async with opened(devtools, url) as page:
        await page.evaluate(scripts.UNFOLD)
        await page.evaluate("document.body.scrollHeight")
        title = await page.evaluate("document.title")
        made = await page.evaluate("document.querySelectorAll('script, img, iframe, a').length")
    assert [one for one in page.requested if not one.startswith("data:image/png")] == [url]
    assert page.complaints == []
    assert made == 0
    assert title.startswith(("PASS", "FAIL", "UNPROVEN"))


@pytest.mark.asyncio
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["load", "failed"])
async def test_all_text_stands_out(devtools: str, folder: Path, name: str, scheme: str) -> None:
    async with opened(devtools, (folder / f"{name}.html").as_uri()) as page:
        await page.look_like(width=1400, scheme=scheme)
        await page.evaluate(scripts.UNFOLD)
        seen = await page.evaluate(scripts.FAINT)
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert seen["looked"] > 200
    assert seen["faint"] == []
    assert ground == {"light": "rgb(252, 252, 253)", "dark": "rgb(13, 17, 23)"}[scheme]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", PAGES)
async def test_a_phone_shows_the_page_without_scrolling_sideways(
    devtools: str, folder: Path, name: str
) -> None:
    async with opened(devtools, (folder / f"{name}.html").as_uri()) as page:
        await page.look_like(width=400, scheme="light")
        await page.evaluate(scripts.UNFOLD)
        width = await page.evaluate("document.scrollingElement.scrollWidth")
        wider = await page.evaluate(scripts.WIDER)
    assert (width, wider) == (400, [])


@pytest.mark.asyncio
async def test_paper_shows_what_is_folded_away(devtools: str, folder: Path) -> None:
    async with opened(devtools, (folder / "load.html").as_uri()) as page:
        hidden = await page.evaluate(scripts.HIDDEN)
        await page.look_like(width=800, scheme="dark", media="print")
        on_paper = await page.evaluate(scripts.HIDDEN)
        seen = await page.evaluate(scripts.FAINT)
        verdict = await page.evaluate("getComputedStyle(document.body).color")
    assert len(hidden) > 50
    assert on_paper == []
    assert seen["faint"] == []
    assert verdict == "rgb(27, 31, 36)"  # a dark screen does not darken paper


@pytest.mark.asyncio
@pytest.mark.parametrize("name", PAGES)
async def test_a_screen_reader_hears_it_in_order(devtools: str, folder: Path, name: str) -> None:
    async with opened(devtools, (folder / f"{name}.html").as_uri()) as page:
        levels = await page.evaluate(scripts.HEADINGS)
        twice = await page.evaluate(scripts.IDS_TWICE)
        landmarks = await page.evaluate(scripts.LANDMARKS)
        nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        charts = await page.evaluate("document.querySelectorAll('figure').length")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert twice == []
    assert landmarks == [1, 1, 1]
    images = [node for node in nodes if node["role"]["value"] in ("image", "img")]
    assert len([one for one in images if len(one["name"]["value"]) > 30]) == charts
