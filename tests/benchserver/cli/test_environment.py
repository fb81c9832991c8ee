"""Options from variables: errors name them, and nobody's variables break nothing."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.cli import serve
from benchserver.cli.environment import variables_of, warning
from benchserver.cli.main import cli
from tests.benchserver.cli.commandline import Runs, invoke

SERVICE = {
    "BENCH_SERVER_SERVE_SERVICE_HOST": "10.0.0.1",
    "BENCH_SERVER_SERVE_SERVICE_PORT": "5555",
    "BENCH_SERVER_SERVE_PORT": "tcp://10.0.0.1:5555",
    "BENCH_SERVER_SERVE_PORT_5555_TCP": "tcp://10.0.0.1:5555",
    "BENCH_SERVER_SERVE_PORT_5555_TCP_PROTO": "tcp",
    "BENCH_SERVER_SERVE_PORT_5555_TCP_PORT": "5555",
    "BENCH_SERVER_SERVE_PORT_5555_TCP_ADDR": "10.0.0.1",
    "BENCH_SERVER_SERVE_HTTP_PORT": "udp://10.0.0.2:8080",
    "BENCH_SERVER_PORT": "tcp://10.0.0.3:80",
}
"""What Kubernetes makes of services `bench-server`, `bench-server-serve`, `...-serve-http`."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect the options that a server would be started with."""
    seen: list[dict[str, Any]] = []

    def run(options: Any, _: Any) -> int:
        seen.append(dict(options))
        return 0

    monkeypatch.setattr(serve, "run_server", run)
    return seen


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        ((), {"BENCH_SERVER_END": "x"}, "'x' is not a decimal integer, from the variable "),
        ((), {"BENCH_SERVER_END": "0"}, "(--end is from the variable "),
        ((), {"BENCH_SERVER_MODE": "tpu"}, "'tpu' is not one of 'gpu', 'cpu', from the variable "),
        ((), {"BENCH_SERVER_JSON": "none/x"}, "an existing directory (--json is from the variable"),
        ((), {"BENCH_SERVER_HTTP_TOKEN": "a b"}, "(--http-token is from the variable "),
        ((), {"BENCH_SERVER_CONFIG": "none.toml"}, "directory, from the variable "),
        (("serve",), {"BENCH_SERVER_SERVE_PORT": "-1"}, "0 to 65535, from the variable "),
        (("serve",), {"BENCH_SERVER_SERVE_FAULT": "x"}, "known: "),
        (("serve",), {"BENCH_SERVER_SERVE_RELEASE": "0"}, "(--as is from the variable "),
        (("selftest",), {"BENCH_SERVER_SELFTEST_ONLY": "x"}, "(--only is from the variable "),
    ],
)
def test_an_error_names_the_variable_that_it_comes_from(
    args: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    result = invoke(*args, **env)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    if "known" not in text:
        assert f"the variable {next(iter(env))}" in result.stderr


def test_an_error_of_the_command_line_names_no_variable() -> None:
    result = invoke("--mode", "cpu", "--end", "0", BENCH_SERVER_END="1")
    assert "variable" not in result.stderr
    assert "--config" not in invoke("--end", "x").stderr


def test_an_error_names_the_file_that_it_comes_from(tmp_path: Any) -> None:
    path = tmp_path / "bench.toml"
    path.write_text("end = 0\n")
    assert "(--end is from --config)" in invoke("--config", str(path)).stderr


def test_a_service_of_our_name_does_not_break_the_start(served: list[dict[str, Any]]) -> None:
    result = invoke("serve", **SERVICE)
    assert result.exit_code == 0, result.stderr
    assert (served[0]["port"], served[0]["http_port"]) == (5555, 8080)
    assert result.stderr.startswith("bench-server: warning: BENCH_SERVER_PORT, BENCH_SERVER_SERVE_")
    text = " and 1 more in the environment are not options of bench-server: ignored\n"
    assert result.stderr.endswith(text)
    assert result.stderr.count("\n") == 1


def test_a_port_from_a_variable_is_still_one(served: list[dict[str, Any]]) -> None:
    result = invoke("serve", BENCH_SERVER_SERVE_PORT="1234")
    assert (result.exit_code, result.stderr) == (0, "")
    assert served[0]["port"] == 1234


def test_a_misspelt_variable_is_a_warning(runs: Runs) -> None:
    result = invoke("--mode", "cpu", "--quiet", BENCH_SERVER_NUM_TOKEN="512")
    assert (result.exit_code, len(runs)) == (0, 1)
    assert result.stderr == (
        "bench-server: warning: BENCH_SERVER_NUM_TOKEN in the environment is not an option of "
        "bench-server: ignored\n"
    )


def test_names_of_any_kind_are_shown_in_one_line() -> None:
    text = warning(cli, {"BENCH_SERVER_\x1b[31m\n": "x", "BENCH_SERVERX": "x", "PATH": "x"})
    assert text.isprintable()
    assert text.startswith(r"BENCH_SERVER_\x1b[31m\n in the environment is not an option")


def test_every_option_has_its_variable() -> None:
    known = {name: option.row.name for name, option in variables_of(cli)}
    assert known["BENCH_SERVER_RPC_URL"] == "--rpc-url"
    assert known["BENCH_SERVER_JSON"] == "--json"
    assert known["BENCH_SERVER_SERVE_L1_SIZE_GB"] == "--l1-size-gb"
    assert known["BENCH_SERVER_SELFTEST_JOBS"] == "--jobs"
    assert warning(cli, dict.fromkeys(known, "1")) == ""


def test_a_run_says_which_variables_it_heeds(runs: Runs) -> None:
    result = invoke("--mode", "cpu", BENCH_SERVER_END="7", BENCH_SERVER_RPC_URL="tcp://a:1")
    text = "Options from the environment: BENCH_SERVER_RPC_URL, BENCH_SERVER_END\n"
    assert result.stdout == text
    assert runs[0].end == 7
