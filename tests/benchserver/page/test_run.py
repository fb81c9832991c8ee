"""The page of a run: of a good one, a bad one, one that says hardly anything, and a hostile one."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.page.run import html_report
from tests.benchserver.page.documents import check, run_document
from tests.benchserver.page.test_markup import Tags


def test_every_chart_is_drawn_once() -> None:
    made = html_report(run_document()).decode()
    for key in ("latency", "heat-0", "units", "bytes", "failures", "hits", "growth-0"):
        assert made.count(f'<figure data-chart="{key}">') == 1, key
    assert "has no figures for" not in made
    assert "4 of 4" in made
    assert "PASS</strong>" in made
    assert "Not looked at: digests." in made
    assert "seed" in made
    assert len(made) < 1 << 20


def test_a_failure_is_said_first_with_its_evidence() -> None:
    checks = {"content": check(), "store": check("invalid", failed=1, texts=["rank=0: <b>no</b>"])}
    made = html_report({"verdict": "invalid", "checks": checks}).decode()
    assert "FAIL</strong>" in made
    assert made.index("store: rank=0: &lt;b&gt;no&lt;/b&gt;") < made.index("<main>")
    assert made.index("<h3>store") < made.index("<h3>content")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"verdict": "valid"},
        {"verdict": 3, "checks": [], "latency": {"a": 1}, "load": 7, "growth": {"resources": [1]}},
        {"checks": {"a": None}, "probes": {"b": 1}, "latency": {"STORE": {"p50_ms": "fast"}}},
        {"growth": {"resources": [{"samples": [[1], ["a", 2], [1, 2]]}]}},
    ],
)
def test_a_report_that_says_little_is_a_page_that_says_so(document: dict[str, Any]) -> None:
    made = html_report(document).decode()
    assert "The report has no figures for: latency by operation" in made
    assert "<h1>bench-server met no server at an unknown address</h1>" in made


def test_no_word_of_a_peer_becomes_markup() -> None:
    evil = "</title><script>alert(1)</script>"
    document = run_document(
        verdict="unknown",
        server={"version": evil, "rpc_url": evil},
        checks={evil: check("unknown", unproven=1, texts=[evil, 3])},
        probes={evil: {"made": 1, "not_evaluated": evil}},
        latency={evil: run_document()["latency"]["STORE"]},
        replay=evil,
        run={evil: evil},
        over_time={},
    )
    made = html_report(document).decode()
    assert "script" not in Tags(made).tags
    assert "<script" not in made
    assert "UNPROVEN</strong>" in made
