"""The documented lines, letter for letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchserver.check.content import CONTENT
from benchserver.check.digests import DIGESTS
from benchserver.check.residue import RESIDUE
from benchserver.check.run import RUN, new_ledger
from benchserver.check.sessions import SESSIONS
from benchserver.check.transfers import STORE
from benchserver.check.verdict import (
    Finding,
    Verdict,
    failed,
    not_looked_at,
    passed,
    unproven,
)
from benchserver.config.run import RunConfig
from benchserver.history import (
    SequenceRecord,
)
from benchserver.line import BAD, FAINT, GOOD, PLAIN, Line
from benchserver.report.lines import (
    summary_lines,
    verdict_lines,
    verdict_on,
)
from benchserver.report.replay import replay_command
from benchserver.result import RunResult, ServerFacts
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import EQUAL_CHUNKS, PROBES
from benchserver.scenarios.baseline.series import RATES, SEQUENCE, SERIES, count
from benchserver.scenarios.baseline.series import STORE as STORE_SERIES
from benchserver.section import Section
from benchserver.stats.measures import Measures

GoodSequence = Callable[..., SequenceRecord]
GoodResult = Callable[..., RunResult]
MakeConfig = Callable[..., RunConfig]


def verdict_of(label: str, findings: Sequence[Finding]) -> list[Line]:
    return verdict_on(label, findings, proven="ALL IS WELL")


def summed_up(result: RunResult) -> list[Line]:
    return summary_lines(result, "Sequences")


def test_the_verdict_on_a_sequence(good_sequence: GoodSequence) -> None:
    record = good_sequence(seq=12)
    assert verdict_of(record.label, [passed(STORE), passed(CONTENT)]) == [
        Line("[seq=12] ALL IS WELL", GOOD)
    ]
    findings = [
        passed(STORE),
        failed(CONTENT, "seq=12 rank=0: CHECKSUM MISMATCH"),
        unproven(DIGESTS, "seq=12 rank=0: HTTP 500"),
    ]
    assert verdict_of(record.label, findings) == [
        Line("[seq=12] FAILED content: seq=12 rank=0: CHECKSUM MISMATCH", BAD),
        Line("[seq=12] UNPROVEN digests: seq=12 rank=0: HTTP 500", BAD),
    ]


def test_one_cause_is_one_line(good_sequence: GoodSequence) -> None:
    """A server that was restarted under eight ranks: what failed, and what was not come to."""
    lost = "seq=3 rank={}: STORE: not sent, the connection was lost"
    findings = [
        *(unproven(STORE, lost.format(rank)) for rank in range(8)),
        failed(STORE, lost.format(9)),
        *(not_looked_at(CONTENT, f"seq=3 rank={rank}: nobody could") for rank in range(8)),
        not_looked_at(SESSIONS, "seq=3: no session was ended"),
    ]
    cause = lost.format(0)
    assert verdict_of(good_sequence().label, findings) == [
        Line(f"[seq=3] UNPROVEN store: {cause} (the same on 7 more ranks)", BAD),
        Line(f"[seq=3] FAILED store: {lost.format(9)}", BAD),
        Line("[seq=3] UNPROVEN content, sessions: not looked at after that, 9 in all", BAD),
    ]
    # Where nothing says why, the first of them is shown.
    assert verdict_of(good_sequence().label, findings[-2:]) == [
        Line("[seq=3] UNPROVEN content: seq=3 rank=7: nobody could", BAD),
        Line("[seq=3] UNPROVEN sessions: not looked at after that, 1 in all", BAD),
    ]


def test_what_only_follows_is_one_line_of_the_summary(good_result: GoodResult) -> None:
    result = good_result()
    result.ledger.add([not_looked_at(STORE, "rank=0: STORE did not happen")] * 8)
    result.ledger.add([not_looked_at(CONTENT, "nobody"), failed(CONTENT, "bad")])
    assert result.ledger.verdict() is Verdict.INVALID
    texts = [line.text for line in summed_up(result)]
    assert texts[-4:-2] == ["content: bad", "UNPROVEN store: not looked at after that, 8 in all"]
    lone = good_result()
    lone.ledger.add([not_looked_at(STORE, "rank=0: STORE did not happen")] * 8)
    texts = [line.text for line in summed_up(lone)]
    assert texts[-3] == "store: rank=0: STORE did not happen"
    assert texts[-2].startswith("RESULT: UNPROVEN (exit 1)")


def measured(record: SequenceRecord) -> Measures:
    measures = Measures(SERIES, RATES)
    count(record, measures)
    count(record, measures)
    return measures


CHECK_ROWS = """\
check             passed    failed  unproven
cold_lookup            1         0         0
store                  1         0         0
dropped                1         0         0
visibility             1         0         0
warm_lookup            1         0         0
retrieve               1         0         0
content                1         0         0
source                 1         0         0
canaries               1         0         0
digests                1         0         0
partial                1         0         0
isolation              1         0         0
bounds                 1         0         0
sessions               1         0         0
replies                1         0         0
transport              1         0         0
health                 1         0         0
residue                1         0         0
growth                 1         0         0
run                    1         0         0
Probes, in how many sequences: equal_chunks 1, reused_source 1, partial 1, isolation 1, bounds 1"""


@pytest.mark.parametrize("lines_of", [summed_up, verdict_lines])
@pytest.mark.parametrize("bad", [False, True])
def test_what_was_owed_and_not_made_is_named_with_its_reason(
    good_result: GoodResult, lines_of: Callable[[RunResult], list[Line]], bad: bool
) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies if check is not DIGESTS)
    ledger.skip(DIGESTS, "--no-http")
    ledger.rule_out(EQUAL_CHUNKS, "a sequence is one chunk")
    ledger.add_probes(set(PROBES) - {EQUAL_CHUNKS})
    ledger.add([failed(STORE, "no")] if bad else [])
    texts = [line.text for line in lines_of(good_result(ledger=ledger))]
    assert "Not evaluated: digests (--no-http); equal_chunks (a sequence is one chunk)" in texts


def test_the_summary_of_a_good_run(good_result: GoodResult, good_sequence: GoodSequence) -> None:
    lines = summed_up(good_result(measures=measured(good_sequence())))
    assert "\n".join(line.text for line in lines) == (
        f"""
Sequences: 2 run, 2 proven, 0 failed, 0 unproven, in 1.23 s
{CHECK_ROWS}
latency [ms]         count      mean       min       p50       p90       p99     p99.9       max
LOOKUP cold              2      0.25      0.25      0.25      0.25      0.25      0.25      0.25
STORE                    4      2.00      2.00      2.00      2.00      2.00      2.00      2.00
LOOKUP warm              2      0.31      0.31      0.31      0.31      0.31      0.31      0.31
RETRIEVE                 4      1.00      1.00      1.00      1.00      1.00      1.00      1.00
visibility lag           2      0.00      0.00      0.00      0.00      0.00      0.00      0.00
sequence wall            2     12.00     12.00     12.00     12.00     12.00     12.00     12.00
Throughput: STORE 0.50 GB/s, RETRIEVE 1.00 GB/s
Target: LMCache MP server 0.5.6-g3e11e108, lmcache_driven over handle
RESULT: PASS, everything asked for was proven (exit 0)"""
    )
    assert lines[-1].style == GOOD
    assert {line.style for line in lines[:-1]} == {PLAIN, FAINT}


def test_latencies_that_are_longer_than_counted_are_said_to_be(
    good_result: GoodResult, good_sequence: GoodSequence
) -> None:
    measures = measured(good_sequence())
    measures.latencies[STORE_SERIES].add_censored(2_000_000)
    measures.latencies[STORE_SERIES].add(2 * 3_600 * 1_000_000_000)
    measures.latencies[SEQUENCE].add_censored(12_000_000)
    lines = [line.text for line in summed_up(good_result(measures=measures))]
    store = next(line for line in lines if line.startswith("STORE  "))
    both = "1 without a usable answer, 1 over an hour"
    assert store.endswith(f"({both}: each took at least that long)")
    wall = next(line for line in lines if line.startswith("sequence wall"))
    assert wall.endswith("12.00  (1 without a usable answer: each took at least that long)")
    assert sum("at least that long" in line for line in lines) == 2


def test_the_summary_of_a_bad_run(good_result: GoodResult) -> None:
    result = good_result(sequences_ok=1, sequences_failed=1, interrupted=True)
    result.ledger.add([failed(CONTENT, "first"), failed(CONTENT, "second")])
    result.ledger.add([unproven(DIGESTS, "HTTP 500")])
    lines = summed_up(result)
    texts = [line.text for line in lines]
    assert texts[1] == ("Sequences: 2 run, 1 proven, 1 failed, 0 unproven, in 1.23 s (interrupted)")
    assert Line("content                1         2         0", BAD) in lines
    assert Line("digests                1         0         1", BAD) in lines
    assert lines[-4:] == [
        Line("content: first", BAD),
        Line("digests: HTTP 500", BAD),
        Line("RESULT: FAIL (exit 1); figures above are of a run that did not pass", BAD),
        Line(f"Replay: {replay_command(result)}"),
    ]
    # Nothing was measured: no empty table, no division by zero.
    assert not any(text.startswith(("latency", "Throughput")) for text in texts)


@pytest.mark.parametrize(
    ("tp_size", "concurrency", "said"),
    [
        (1, 1, "Throughput: "),
        (2, 1, "Throughput (of one w"),
        (1, 2, "Throughput (of one worker): "),
    ],
)
def test_figures_of_several_workers_are_those_of_one(
    good_result: GoodResult,
    good_sequence: GoodSequence,
    make_config: MakeConfig,
    tp_size: int,
    concurrency: int,
    said: str,
) -> None:
    config = make_config(tp_size=tp_size, concurrency=concurrency)
    lines = summed_up(good_result(measures=measured(good_sequence()), config=config))
    assert len([line for line in lines if line.text.startswith(said)]) == 1


def test_checks_that_did_not_run(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies if check not in (DIGESTS, RESIDUE))
    ledger.skip(DIGESTS, "--no-http")
    lines = summed_up(good_result(ledger=ledger))
    assert Line("digests       not evaluated: --no-http", FAINT) in lines
    assert Line("residue                0         0         0  (never run)", BAD) in lines
    assert lines[-2].text.startswith("RESULT: UNPROVEN (exit 1)")
    ledger.skip(RESIDUE, "x")
    assert summed_up(good_result(ledger=ledger))[-1].text.startswith("RESULT: PASS")


def test_a_run_without_a_sequence_has_no_figures(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add([failed(RUN, "cannot reach the server")])
    result = good_result(ledger=ledger, sequences_ok=0)
    assert summed_up(result) == [
        Line("run: cannot reach the server", BAD),
        Line("RESULT: FAIL (exit 1)", BAD),
        Line(f"Replay: {replay_command(result)}"),
    ]


def test_sections_stand_before_the_verdict_also_of_a_run_that_failed_at_once(
    good_result: GoodResult,
) -> None:
    lines = (Line("2 requests"), Line("1 late", BAD))
    sections = (
        Section(key="load", title="Load", lines=lines, document={}),
        Section(key="silent", title="Silent", lines=(), document={}),
    )
    shown = [Line("Load", FAINT), *lines]
    assert summed_up(good_result(sections=sections))[-4:-1] == shown
    assert summed_up(good_result(sections=sections, sequences_ok=0))[:3] == shown


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({}, "LMCache MP server 0.5.6-g3e11e108, lmcache_driven over handle"),
        (
            {"version": "0.5.6-embedded"},
            "bench-server's embedded server: no evidence about LMCache, lmcache_driven over handle",
        ),
        ({"version": ""}, "LMCache MP server 0.5.6, lmcache_driven over handle"),
        (
            {"version": "", "release": "", "transfer_mode": "", "transport": ""},
            "LMCache MP server (release unknown), no transfer mode over no transport",
        ),
    ],
)
def test_every_report_says_what_its_target_was(
    good_result: GoodResult, changes: dict[str, Any], target: str
) -> None:
    server: ServerFacts = replace(good_result().server, **changes)
    texts = [line.text for line in summed_up(good_result(server=server))]
    assert f"Target: {target}" in texts


def test_a_run_on_gpus_says_so(good_result: GoodResult, make_config: MakeConfig) -> None:
    texts = [line.text for line in summed_up(good_result(config=make_config(mode="gpu")))]
    target = "Target: LMCache MP server 0.5.6-g3e11e108, lmcache_driven over handle"
    assert f"{target}, KV in GPU memory" in texts


def test_counts_are_of_what_the_scenario_says(good_result: GoodResult) -> None:
    text = summary_lines(good_result(), "Round trips")[1].text
    assert text == "Round trips: 2 run, 2 proven, 0 failed, 0 unproven, in 1.23 s"
