"""The record of a run: what is known stands there, what is not says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchserver.config.run import RunConfig
from benchserver.environment.memory import ServerMemory
from benchserver.report.files import json_bytes
from benchserver.report.record import Asked, Readings, record_sections
from benchserver.result import RunResult, ServerAccount, ServerFacts
from benchserver.section import RECORD_KEYS, REPORT_KEYS
from tests.rules.documents import rows_under

GoodResult = Callable[..., RunResult]
MakeConfig = Callable[..., RunConfig]

ASKED = Asked(
    words=("bench-server", "--model-name", "a b", "--http-token", "hunter2"),
    began_at="2026-12-01T09:08:07.123+00:00",
    load_average=(1.0,),
)
READINGS = Readings(
    software={"python": "CPython 3.11.7"},
    machine={"kernel": "6.1"},
    own_peak_bytes=100,
    server_memory=ServerMemory(pid=7, name="lmcache", peak_bytes=200),
)
ACCOUNT = ServerAccount(
    configuration={"mp": {"port": 5555}},
    unread="",
    l1_bytes=1 << 30,
    l1_used_before=0,
    l1_used_after=4096,
)


def run_of(result: RunResult, readings: Readings = READINGS) -> Any:
    run, _ = record_sections(result, ASKED, readings)
    return run.document


def test_what_is_known_of_a_run(good_result: GoodResult) -> None:
    result = good_result(nonce="00ff00ff00", account=ACCOUNT)
    run, environment = record_sections(result, ASKED, READINGS)
    assert run.document == {
        "id": "20261201T090807-00ff00ff00",
        "started_at": "2026-12-01T09:08:07.123+00:00",
        "command_line": "bench-server --model-name 'a b' --http-token '***'",
        "software": {"python": "CPython 3.11.7"},
        "engine": {
            "seed": 7,
            "model_name": "bench-server",
            "tp_size": 1,
            "mla": False,
            "dtypes": ["float16"],
            "block_size": 16,
            "chunk_tokens": 256,
            "chunk_bytes_per_rank": 2 * 256 * 8 * 128 * 2 * 32,
        },
        "server": {
            "version": "0.5.6-g3e11e108",
            "release": "0.5.6",
            "configuration": {"mp": {"port": 5555}},
            "l1_bytes": 1 << 30,
            "l1_used_before_bytes": 0,
            "l1_used_after_bytes": 4096,
            "cache": "cold",
        },
        "memory": {
            "own_peak_bytes": 100,
            "server": {"pid": 7, "name": "lmcache", "peak_bytes": 200},
        },
    }
    document = Path(__file__).parents[3] / "docs/report.md"
    rows = rows_under(document.read_text(encoding="utf-8"), "in `run`", "what it holds")
    assert rows.keys() == run.document.keys()
    assert environment.document == {"kernel": "6.1"}
    assert {run.key, environment.key} == RECORD_KEYS


def test_json_has_it_beside_what_every_report_says(good_result: GoodResult) -> None:
    sections = record_sections(good_result(), ASKED, READINGS)
    document = json.loads(json_bytes(good_result(sections=sections)))
    assert document.keys() == REPORT_KEYS | RECORD_KEYS


def test_a_cache_that_held_something_was_warm(good_result: GoodResult) -> None:
    account = ServerAccount(unread="", l1_bytes=10, l1_used_before=1)
    server = run_of(good_result(account=account))["server"]
    assert server["cache"] == "warm"
    assert server["l1_used_after_bytes"] == "not known: /status does not say"
    assert server["configuration"] == "not known: /status does not say"


def test_a_run_that_could_not_begin_says_so_everywhere(good_result: GoodResult) -> None:
    server = ServerFacts(rpc_url="tcp://x:1", http_url="http://x:2")
    readings = Readings(
        software={},
        machine={},
        own_peak_bytes=None,
        server_memory=ServerMemory(unseen="no run was made"),
    )
    run = run_of(good_result(server=server), readings)
    assert run["id"] == "20261201T090807-not-begun"
    assert run["server"] == {
        "version": "not known: it does not say",
        "release": "not known: no server was met",
        **dict.fromkeys(
            (
                "configuration",
                "l1_bytes",
                "l1_used_before_bytes",
                "l1_used_after_bytes",
                "cache",
            ),
            "not known: no run was made",
        ),
    }
    assert run["engine"]["chunk_tokens"] == "not known: no server was met"
    assert run["engine"]["chunk_bytes_per_rank"] == "not known: no server was met"
    assert run["memory"] == {
        "own_peak_bytes": "not known: /proc does not say",
        "server": "not known: no run was made",
    }


def test_a_run_without_workers_has_no_engine(
    good_result: GoodResult, make_config: MakeConfig
) -> None:
    config = replace(make_config(), engine=None)
    assert run_of(good_result(config=config))["engine"] is None
