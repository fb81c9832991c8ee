"""A scenario as a command of its own: its options, its variables, its run, its replay line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchserver.cli import play
from benchserver.cli.main import SCENARIOS
from benchserver.config.run import RunConfig
from benchserver.report.replay import replay_words
from benchserver.scenarios.command import Command
from tests.benchserver.cli.commandline import invoke


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Collect what would be run, and run nothing."""
    seen: list[RunConfig] = []

    def run(config: RunConfig, _: Any) -> int:
        seen.append(config)
        return 0

    monkeypatch.setattr(play, "_run", run)
    return seen


@pytest.mark.parametrize("command", SCENARIOS, ids=lambda command: command.name)
def test_each_has_its_help_and_is_asked_for_again_by_its_words(
    asked: list[RunConfig], command: Command[Any]
) -> None:
    told = invoke(command.name, "--help").stdout
    assert told.startswith(f"Usage: bench-server {command.name} [OPTIONS]")
    assert invoke(command.name).exit_code == 0
    words = replay_words(command.tables, asked[0].values())
    assert invoke(command.name, *words).exit_code == 0
    assert asked[0] == asked[1]


def test_a_scenario_without_an_engine_has_none(asked: list[RunConfig]) -> None:
    assert invoke("ping", "--count", "7", "--interval", "0.5", "--timeout", "2").exit_code == 0
    (config,) = asked
    assert (config.command, config.engine, config.target.timeout_s) == ("ping", None, 2.0)
    assert config.values()["count"] == config.own.units == 7


def test_wrong_usage_points_to_its_own_help() -> None:
    result = invoke("ping", "--count", "0")
    assert result.exit_code == 2
    assert result.stderr.endswith("; see bench-server ping --help\n")
    result = invoke("ping", "--embedded", "--url", "http://x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--url and --embedded exclude each other" in result.stderr
    assert "No such option" in invoke("ping", "--tp-size", "2").stderr


def test_what_scenarios_share_comes_from_the_same_variables(asked: list[RunConfig]) -> None:
    env = {"BENCH_SERVER_RPC_URL": "tcp://host:1", "BENCH_SERVER_PING_COUNT": "3"}
    assert invoke("ping", **env, BENCH_SERVER_INTERVAL="9").exit_code == 0
    values = asked[0].values()
    assert (values["rpc_url"], values["count"], values["interval_s"]) == ("tcp://host:1", 3, 1.0)


def test_what_scenarios_share_comes_from_the_same_lines_of_the_file(
    asked: list[RunConfig], tmp_path: Path
) -> None:
    (tmp_path / "bench.toml").write_text(
        'url = "http://host:2"\ntimeout = 3\ninterval = 9\n[ping]\ncount = 4\ntimeout = 5\n'
    )
    assert invoke("--config", "bench.toml", "ping").exit_code == 0
    values = asked[0].values()
    assert (values["http_url"], values["timeout_s"]) == ("http://host:2", 5.0)
    assert (values["count"], values["interval_s"]) == (4, 1.0)


def test_it_runs_reports_and_can_be_run_again(tmp_path: Path) -> None:
    args = ("ping", "--embedded", "--count", "2", "--interval", "0", "--json", "r.json")
    result = invoke(*args)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "[ping=1] OK" in lines
    assert lines[-1] == "RESULT: PASS, everything asked for was proven (exit 0)"
    assert lines[-2] == "Not evaluated: growth (it takes 150 s or more to tell)"
    assert lines[-3] == "Target: bench-server's embedded server: no evidence about LMCache"
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["checks"]["answers"]["passed"] == 4
    assert document["config"]["count"] == 2
    assert "spec" not in document["config"]
    assert document["replay"] == "bench-server ping --count 2 --interval 0 --embedded"
