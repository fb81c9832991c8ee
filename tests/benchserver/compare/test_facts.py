"""What must be equal, out of reports."""

from __future__ import annotations

import pytest

from benchserver.cli.main import SCENARIOS
from benchserver.compare.facts import (
    CONFIG_FREE,
    NOT_SAID,
    covers,
    decides_work,
    facts_of,
    parts_of,
)
from benchserver.options.option import options_in
from benchserver.scenarios.baseline.command import COMMAND as BASELINE
from tests.benchserver.compare.reports import report, with_values


def test_facts_by_their_keys() -> None:
    facts = facts_of(report())
    assert facts["scenario"] == "load"
    assert facts["config.num_tokens"] == "512"
    assert facts["config.rate"] == "null"
    assert facts["server.host"] == "this host"
    assert facts["server_config.mp.chunk_size"] == "256"
    assert facts["machine.memory_bytes"] == "23.5 GiB"
    assert facts["software.numpy"] == "2.4.6"
    free = ("config.seed", "config.rpc_url", "engine.seed", "server_config.mp.port")
    assert not set(free) & set(facts)
    assert not {"software.lmcache", "server.version"} & set(facts), "what is compared"


@pytest.mark.parametrize(
    ("replay", "scenario"),
    [("bench-server --mode cpu", "baseline"), ("bench-server ping", "ping"), ("", "baseline")],
)
def test_the_scenario_is_the_command(replay: str, scenario: str) -> None:
    assert facts_of(with_values(report(), {"replay": replay}))["scenario"] == scenario


@pytest.mark.parametrize(
    ("url", "host"),
    [("tcp://localhost:1", "this host"), ("tcp://[::1]:1", "this host"),
     ("tcp://node7:5555", "node7"), ("tcp://[oops", "tcp://[oops")],
)  # fmt: skip
def test_names_of_this_host_are_one(url: str, host: str) -> None:
    assert facts_of(with_values(report(), {"server.rpc_url": url}))["server.host"] == host


def test_reasons_why_something_is_not_known_do_not_differ() -> None:
    made = with_values(report(), {"run.server.cache": "not known: no answer from pid 7"})
    assert facts_of(made)["server.cache"] == "not known"


def test_what_a_report_lacks_is_a_fact() -> None:
    made = report()
    del made["environment"]
    made["run"] = None
    facts = facts_of(made)
    assert (facts["run"], facts["machine"]) == (NOT_SAID, NOT_SAID)


def test_what_is_free_are_options() -> None:
    keys = {o.json_key for c in (BASELINE, *SCENARIOS) for o in options_in(c.tables)}
    assert keys >= CONFIG_FREE


def test_keys_and_their_parts() -> None:
    assert covers("machine", "machine.cpus")
    assert covers("machine.cpus", "machine.cpus")
    assert not covers("machine.cpu", "machine.cpus")
    assert parts_of(iter(["a.b.c"])) == {"a", "a.b", "a.b.c"}
    assert decides_work("config.rate")
    assert not decides_work("machine.cpus")
