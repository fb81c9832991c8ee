"""Report files read back: JSON fields, JUnit cases, whole files or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchserver.check.content import CONTENT
from benchserver.check.digests import DIGESTS
from benchserver.check.run import RUN, STAGE_CHECKS, new_ledger
from benchserver.check.verdict import failed, passed, unproven
from benchserver.config.run import RunConfig
from benchserver.history import SequenceRecord
from benchserver.kv.placement import RankDevice
from benchserver.report.files import json_bytes, junit_document
from benchserver.report.overtime import over_time_document
from benchserver.report.replay import replay_command
from benchserver.result import RunResult
from benchserver.scenarios.baseline.checks import CHECKS
from benchserver.scenarios.baseline.plan import EQUAL_CHUNKS, PROBES
from benchserver.scenarios.baseline.series import RATES, SEQUENCE, SERIES, VISIBLE, count
from benchserver.section import REPORT_KEYS, Section
from benchserver.stats.measures import Measures
from tests.reportschema import check_report

GoodSequence = Callable[..., SequenceRecord]
GoodResult = Callable[..., RunResult]
MakeConfig = Callable[..., RunConfig]


def suite_of(result: RunResult) -> ElementTree.Element:
    return ElementTree.fromstring(junit_document(result))


def properties_of(suite: ElementTree.Element) -> dict[str, str]:
    """Return the properties, but for the line that asks for the run again."""
    found = {p.attrib["name"]: p.attrib["value"] for p in suite.iter("property")}
    assert found.pop("replay").startswith("bench-server ")
    return found


def cases_of(result: RunResult) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in suite_of(result).iter("testcase")}


# JSON

CONFIG = {
    "rpc_url": "tcp://localhost:5555",
    "http_url": "http://localhost:8080",
    "http_ca": "",
    "server_release": "",
    "timeout_s": 10.0,
    "wait_ready_s": 0.0,
    "own_server": False,
    "mode": "cpu",
    "cuda_ipc": "torch",
    "transfer_mode": "auto",
    "require_transport": "",
    "spec": "(2,1024,16,8,128):float16:32",
    "num_tokens": 512,
    "num_tokens_given": True,
    "tp_size": 1,
    "mla": False,
    "model_name": "bench-server",
    "cache_salt": "",
    "seed": 7,
    "start": 0,
    "end": 2,
    "duration_s": None,
    "interval_s": 0.5,
    "expect_warm": False,
    "partial_every": 10,
    "partial_skip": "blocks",
    "visible_within_s": 2.0,
    "max_dropped": 0.0,
    "growth_bounds": "",
    "max_failures": None,
    "keep_going": False,
    "reconnect": False,
    "reconnect_within_s": 60.0,
    "stall_after_s": None,
    "growth_every_s": 5.0,
    "concurrency": 1,
    "cross_check": True,
}


def test_json_of_a_good_run(good_result: GoodResult, good_sequence: GoodSequence) -> None:
    measures = Measures(SERIES, RATES)
    count(good_sequence(), measures)
    result = good_result(measures=measures)
    content = json_bytes(result)
    assert content.endswith(b"}\n")
    document = json.loads(content)
    check_report(document)
    latency = document.pop("latency")
    checks = document.pop("checks")
    assert document.pop("config") == CONFIG
    assert document == {
        "format": 1,
        "verdict": "valid",
        "exit_code": 0,
        "interrupted": False,
        "wall_s": 1.234,
        "server": {
            "rpc_url": "tcp://localhost:5555",
            "http_url": "http://localhost:8080",
            "version": "0.5.6-g3e11e108",
            "release": "0.5.6",
            "chunk_tokens": 256,
            "transfer_mode": "lmcache_driven",
            "transport": "handle",
            "embedded": False,
        },
        "sequences": {"attempted": 2, "proven": 2, "failed": 0, "unproven": 0},
        "probes": {probe.name: {"made": 1, "not_evaluated": ""} for probe in PROBES},
        "calls_attempted": 6,
        "throughput_gb_per_s": {"STORE": 0.5, "RETRIEVE": 1.0},
        "over_time": over_time_document(result.measures),
        "replay": replay_command(result),
    }
    assert set(checks) == {check.name for check in (*CHECKS, *STAGE_CHECKS)}
    assert checks["content"] == {
        "verdict": "valid",
        "passed": 1,
        "failed": 0,
        "unproven": 0,
        "not_evaluated": "",
        "texts": [],
    }
    assert list(latency) == [
        "LOOKUP cold",
        "STORE",
        "LOOKUP warm",
        "RETRIEVE",
        "visibility lag",
        "sequence wall",
    ]
    assert latency["STORE"] == {
        "count": 2,
        "mean_ms": 2.0,
        "min_ms": 2.0,
        "p50_ms": 2.0,
        "p90_ms": 2.0,
        "p99_ms": 2.0,
        "p999_ms": 2.0,
        "max_ms": 2.0,
    }


def test_json_counts_latencies_that_are_longer_than_counted(good_result: GoodResult) -> None:
    measures = Measures(SERIES, RATES)
    measures.latencies[SEQUENCE].add(1_000_000)
    measures.latencies[SEQUENCE].add_censored(1_000_000)
    measures.latencies[VISIBLE].add(2 * 3_600 * 1_000_000_000)
    latency = json.loads(json_bytes(good_result(measures=measures)))["latency"]
    assert (latency["sequence wall"]["count"], latency["sequence wall"]["censored"]) == (2, 1)
    assert "clamped" not in latency["sequence wall"]
    assert latency["visibility lag"]["clamped"] == 1
    assert "censored" not in latency["visibility lag"]


def test_json_of_a_bad_run(good_result: GoodResult, make_config: MakeConfig) -> None:
    config = make_config(end=None, model_name="m\x00\x1b\ud800")
    result = good_result(config=config, sequences_ok=0, sequences_failed=1, interrupted=True)
    result.ledger.add([failed(CONTENT, "bad \x00 é"), unproven(DIGESTS, "open")])
    document = json.loads(json_bytes(result))
    assert (document["verdict"], document["exit_code"]) == ("invalid", 1)
    assert document["interrupted"] is True
    assert document["config"]["end"] is None
    assert document["config"]["model_name"] == "m\x00\x1b\ud800"
    assert document["sequences"] == {"attempted": 1, "proven": 0, "failed": 1, "unproven": 0}
    assert document["checks"]["content"]["texts"] == ["bad \x00 é"]
    assert document["checks"]["digests"]["verdict"] == "unknown"
    assert document["latency"] == {}
    assert document["throughput_gb_per_s"] == {}


def test_json_has_sections_beside_what_every_report_says(good_result: GoodResult) -> None:
    section = Section(key="load", title="", lines=(), document={"hits": {"ratio": 0.5}})
    assert json.loads(json_bytes(good_result())).keys() == REPORT_KEYS
    document = json.loads(json_bytes(good_result(sections=(section,))))
    assert document.keys() - REPORT_KEYS == {"load"}
    assert document["load"] == {"hits": {"ratio": 0.5}}


DEVICES = tuple(
    RankDevice(rank=rank, number=0, name="NVIDIA H200", uuid="9f-00") for rank in range(2)
)


def test_json_of_a_run_on_gpus(good_result: GoodResult, make_config: MakeConfig) -> None:
    config = make_config(mode="gpu", cuda_ipc="driver", tp_size=2)
    document = json.loads(json_bytes(good_result(config=config, devices=DEVICES)))
    facts = {name: document["config"][name] for name in ("mode", "cuda_ipc", "devices")}
    assert facts == {
        "mode": "gpu",
        "cuda_ipc": "driver",
        "devices": [
            {"rank": 0, "number": 0, "name": "NVIDIA H200", "uuid": "9f-00"},
            {"rank": 1, "number": 0, "name": "NVIDIA H200", "uuid": "9f-00"},
        ],
    }


def test_json_says_what_was_not_evaluated(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.skip(DIGESTS, "--no-http")
    checks = json.loads(json_bytes(good_result(ledger=ledger)))["checks"]
    assert checks["digests"]["not_evaluated"] == "--no-http"
    assert checks["digests"]["verdict"] == "valid"
    assert checks["content"]["verdict"] == "unknown"


# JUnit


def test_junit_has_one_case_a_check(good_result: GoodResult) -> None:
    content = junit_document(good_result())
    assert content.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    suite = suite_of(good_result())
    assert suite.tag == "testsuite"
    assert suite.attrib == {
        "name": "bench-server",
        "tests": str(len((*CHECKS, *STAGE_CHECKS)) + 2),
        "failures": "0",
        "errors": "0",
        "skipped": "0",
        "time": "1.234",
    }
    names = [*(check.name for check in (*CHECKS, *STAGE_CHECKS)), "equal_chunks", "reused_source"]
    cases = list(suite.iter("testcase"))
    assert [case.attrib["name"] for case in cases] == names
    assert {case.attrib["classname"] for case in cases} == {"bench-server"}
    assert all(len(case) == 0 for case in cases)


def test_junit_has_the_figures_of_each_series(
    good_result: GoodResult, good_sequence: GoodSequence
) -> None:
    measures = Measures(SERIES, RATES)
    count(good_sequence(), measures)
    found = properties_of(suite_of(good_result(measures=measures)))
    assert found["latency.STORE.count"] == "2"
    assert float(found["latency.STORE.p99_ms"]) > 0
    assert found["throughput_gb_per_s.RETRIEVE"] == "1.000"


def test_junit_of_a_run_on_gpus(good_result: GoodResult, make_config: MakeConfig) -> None:
    config = make_config(mode="gpu", tp_size=2)
    suite = suite_of(good_result(config=config, devices=DEVICES))
    assert properties_of(suite) == {
        "mode": "gpu",
        "cuda_ipc": "torch",
        "rank 0": "cuda:0 NVIDIA H200 9f-00",
        "rank 1": "cuda:0 NVIDIA H200 9f-00",
    }
    assert len(list(suite.iter("testcase"))) == len((*CHECKS, *STAGE_CHECKS)) + 2


def test_junit_has_the_single_values_of_sections(good_result: GoodResult) -> None:
    document = {
        "workload": "chat\x00",
        "goodput": None,
        "measurement": {"valid": True, "share": 0.25, "reasons": ["x"]},
        "seconds": [{"at_s": 0}],
    }
    section = Section(key="load", title="", lines=(), document=document)
    suite = suite_of(good_result(sections=(section,)))
    assert properties_of(suite) == {
        "load.workload": "chat?",
        "load.goodput": "null",
        "load.measurement.valid": "true",
        "load.measurement.share": "0.25",
    }


def test_junit_failures(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies if check is not RUN)
    ledger.add([failed(CONTENT, "first <&>"), failed(CONTENT, "second")])
    ledger.add([unproven(DIGESTS, "HTTP 500")])
    suite, cases = suite_of(good_result(ledger=ledger)), cases_of(good_result(ledger=ledger))
    assert suite.attrib["failures"] == "3"
    (content,) = cases["content"]
    assert (content.tag, content.attrib["message"]) == ("failure", "first <&>")
    assert content.text == f"{CONTENT.meaning}\nfirst <&>\nsecond"
    assert cases["digests"][0].attrib["message"] == "HTTP 500"
    # A check that never ran does not pass.
    assert cases["run"][0].attrib["message"] == "never evaluated"
    assert len(cases["store"]) == 0


@pytest.mark.parametrize(
    ("findings", "tag", "skipped"),
    [
        ([], "skipped", "1"),
        ([passed(DIGESTS)], None, "0"),
        ([failed(DIGESTS, "x")], "failure", "0"),
        ([unproven(DIGESTS, "x")], "failure", "0"),
    ],
)
def test_junit_counts_what_it_marks_as_skipped(
    good_result: GoodResult, findings: list[Any], tag: str | None, skipped: str
) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies if check is not DIGESTS)
    ledger.skip(DIGESTS, "--no-http")
    ledger.add(findings)
    ledger.add_probes(PROBES)
    result = good_result(ledger=ledger)
    assert [child.tag for child in cases_of(result)["digests"]] == ([tag] if tag else [])
    assert suite_of(result).attrib["skipped"] == skipped
    if tag == "skipped":
        assert cases_of(result)["digests"][0].attrib["message"] == "--no-http"


def test_probes_without_a_check_are_cases_of_their_own(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add(passed(check) for check in ledger.tallies)
    ledger.rule_out(EQUAL_CHUNKS, "a sequence is one chunk")
    ledger.add_probes(set(PROBES) - {EQUAL_CHUNKS})
    result = good_result(ledger=ledger)
    (skipped,) = cases_of(result)["equal_chunks"]
    assert (skipped.tag, skipped.attrib["message"]) == ("skipped", "a sequence is one chunk")
    assert len(cases_of(result)["reused_source"]) == 0
    assert suite_of(result).attrib["skipped"] == "1"
    probes = json.loads(json_bytes(result))["probes"]
    assert probes["equal_chunks"] == {"made": 0, "not_evaluated": "a sequence is one chunk"}


@given(st.text(st.characters(), max_size=30))
def test_any_text_gives_xml_that_parses(good_result: GoodResult, text: str) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add([failed(CONTENT, text)])
    ledger.skip(DIGESTS, text)
    (failure,) = cases_of(good_result(ledger=ledger))["content"]
    assert len(failure.attrib["message"]) == len(text)


def test_control_characters_are_shown_as_question_marks(good_result: GoodResult) -> None:
    ledger = new_ledger(CHECKS, PROBES)
    ledger.add([failed(CONTENT, "a\x00b\x1bc\ud800d\ufffee\tf")])
    (failure,) = cases_of(good_result(ledger=ledger))["content"]
    assert failure.attrib["message"] == "a?b?c?d?e\tf"
