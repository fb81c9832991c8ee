"""The command line: one line and an exit code for everything that is wrong."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from benchserver import embedded
from benchserver.check.content import CONTENT
from benchserver.check.verdict import failed
from benchserver.cli import output, play
from benchserver.cli.main import cli
from benchserver.config.run import RunConfig
from benchserver.ending import Ending
from benchserver.errors import FatalError
from benchserver.kv.gpu import requirements
from benchserver.options.engine import TransferChoice
from benchserver.outlet import Outlet, outlet_for
from benchserver.report.text import TextReporter
from benchserver.result import RunResult
from benchserver.stage import process

GoodResult = Callable[..., RunResult]
Runs = list[SimpleNamespace]
"""What the runs would be asked for, by field."""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the user's own variables, and write nothing where the tests are."""
    for name in list(os.environ):
        if name.startswith("BENCH_SERVER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def invoke(*args: str, **env: str) -> Result:
    return CliRunner().invoke(cli, args, env=env, prog_name="bench-server")


def assert_one_line(result: Result, code: int, *parts: str) -> None:
    """Fail unless it ended with this code and one error line that has all parts."""
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    line = result.stderr
    assert line.startswith("bench-server: error: ")
    assert line.count("\n") == 1
    assert line.endswith("\n")
    for part in parts:
        assert part in line


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Collect the configurations that would run, and run none."""
    seen: Runs = []

    def run(config: RunConfig, _: Any) -> int:
        seen.append(SimpleNamespace(**config.values()))
        return 0

    monkeypatch.setattr(play, "_run", run)
    return seen


# Wrong usage

BAD_FLAGS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("--no-such-option",), ("No such option",)),
    (("no-such-command",), ("No such command 'no-such-command'",)),
    (("--end",), ("--end", "requires an argument")),
    (("--end", "x"), ("'--end'", "'x' is not a decimal integer")),
    (("--end", ""), ("'--end'", "'' is not a decimal integer")),
    (("--end", "1.5"), ("'--end'", "'1.5' is not a decimal integer")),
    (("--end", "1e3"), ("'--end'", "is not a decimal integer")),
    (("--end", "+5"), ("'--end'", "is not a decimal integer")),
    (("--end", "1_000"), ("'--end'", "is not a decimal integer")),
    (("--end", "٣"), ("'--end'", r"'\u0663' is not a decimal integer")),
    (("--end", "-1"), ("'--end'", "-1 is out of range")),
    (("--end", "9" * 19), ("'--end'", "is out of range")),
    (("--end", "9" * 5000), ("'--end'", "is not a decimal integer")),
    (("--end", "0"), ("--end 0 must be greater than --start 0",)),
    (("--start", "5", "--end", "5"), ("--end 5 must be greater than --start 5",)),
    (("--interval", "nan"), ("'--interval'", "is not a decimal number")),
    (("--interval", "-0.1"), ("'--interval'", "is out of range")),
    (("--timeout", "inf"), ("'--timeout'", "is not a decimal number")),
    (("--timeout", "0"), ("'--timeout'", "is out of range")),
    (("--timeout", "1e99"), ("'--timeout'", "is out of range")),
    (("--wait-ready", "-1"), ("'--wait-ready'", "is out of range")),
    (("--visible-within", "x"), ("'--visible-within'", "is not a decimal number")),
    (("--num-tokens", "0"), ("'--num-tokens'", "is out of range")),
    (("--num-tokens", "15"), ("--num-tokens 15 is less than one block of 16 tokens",)),
    (("--tp-size", "0"), ("'--tp-size'", "is out of range")),
    (("--tp-size", "-3"), ("'--tp-size'", "is out of range")),
    (("--tp-size", "257"), ("'--tp-size'", "is out of range")),
    (("--seed", "-1"), ("'--seed'", "is out of range")),
    (("--mode", "tpu"), ("'--mode'", "'tpu' is not one of 'gpu', 'cpu'")),
    (("--transfer-mode", "handle"), ("'--transfer-mode'", "is not one of")),
    (("--require-transport", "rdma"), ("'--require-transport'", "is not one of")),
    (("--num-blocks", "0"), ("'--num-blocks'", "is out of range")),
    (("--kvcache-shape-spec", ""), ("--kvcache-shape-spec: shape spec, column 1",)),
    (("--kvcache-shape-spec", "(2,8,16,1,4):float64:1"), ("'float64', expected a dtype",)),
    (("--kvcache-shape-spec", "(2,8,16,1,４):float16:1"), (r"got '\uff14'",)),
    (
        (
            "--transfer-mode",
            "engine_driven",
            "--kvcache-shape-spec",
            "(2,8,16,1,4):uint8:1;(1,8,16,1,4):uint8:1",
        ),
        ("--transfer-mode engine_driven carries one KV layer group, the shape spec has 2",),
    ),
    (("--use-mla",), ("--use-mla needs kv_size 1 in every group",)),
    (("--expect-warm",), ("--expect-warm needs --seed",)),
    (("--model-name", ""), ("--model-name: a model name must not be empty",)),
    (("--cache-salt", "a@b"), ("--cache-salt: a cache salt must not contain '@'",)),
    (("--rpc-url", "ipc:///tmp/x"), ("--rpc-url ipc:///tmp/x: expected a host and a port",)),
    (("--rpc-url", "localhost"), ("--rpc-url localhost: expected tcp://host:port",)),
    (("--rpc-url", "a..b:1"), ("--rpc-url tcp://a..b:1",)),
    (("--url", "ftp://x"), ("--url ftp://x: expected http://host:port",)),
    (("--url", "http://u:hunter2@x"), ("--url must hold no user or password (it is not shown",)),
    (("--http-ca", "x.pem"), ("--http-ca is for an https --url, and that is http://local",)),
    (("--url", "https://x", "--http-ca", "none.pem"), ("--http-ca none.pem: No such file or",)),
    (("--http-token", "a b"), ("the HTTP token must be 1 to 4096 printable ASCII",)),
    (("--http-token", ""), ("the HTTP token is empty",)),
    (("--http-token-file", "none"), ("--http-token-file 'none': No such file or directory",)),
    (("--server-release", "0.5.66"), ("--server-release: server release '0.5.66' is not known",)),
    (("--json", "none/x.json"), ("--json none/x.json: not a file in an existing directory",)),
    (("--junit", "."), ("--junit .: not a file in an existing directory",)),
    (("--json", "x" * 300), ("--json xxx", "not a file in an existing directory")),
    (("--mode", "cpu", "--cuda-ipc", "torch"), ("--cuda-ipc is for --mode gpu",)),
    (("--embedded", "--cuda-ipc", "driver"), ("--cuda-ipc is for --mode gpu",)),
    (("--cuda-ipc", "mps"), ("'--cuda-ipc'", "'mps' is not one of 'torch', 'driver'")),
    (
        ("--cuda-ipc", "driver", "--transfer-mode", "engine_driven"),
        ("--cuda-ipc driver never matters with --transfer-mode engine_driven",),
    ),
    (("--config", "none.toml"), ("'--config'", "none.toml: No such file or directory")),
    (("--end", "\x1b[31m\n\x07"), ("'--end'", r"'\x1b[31m\n\x07' is not a decimal integer")),
    (("--end\n--evil",), ("No such option",)),
    (("serve", "--port", "65536"), ("'--port'", "is out of range, expected 0 to 65535")),
    (("serve", "--chunk-size", "0"), ("'--chunk-size'", "is out of range")),
    (("serve", "--l1-size-gb", "nan"), ("'--l1-size-gb'", "is not a decimal number")),
    (("serve", "--shm-name", "a/b"), ("--shm-name",)),
    (("serve", "--as", "0.4.5"), ("--as is '0.4.5', expected one of 0.5.7rc2, 0.5.6,",)),
    (("serve", "--as", "\n"), (r"--as is '\n', expected one of",)),
    (
        ("serve", "--as", "0.4.6", "--supported-transfer-mode", "lmcache_driven"),
        ("--supported-transfer-mode is lmcache_driven, which 0.4.6 does not have",),
    ),
    (("serve", "extra"), ("unexpected extra argument",)),
    (("serve", "--fault", "nonsense"), ("fault 'nonsense': no such fault; known: ",)),
    (("serve", "--fault", "delay@0"), ("fault 'delay@0': call 0, expected 1 to",)),
]


@pytest.mark.parametrize(("args", "parts"), BAD_FLAGS)
def test_wrong_usage(args: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_one_line(invoke(*args), 2, *parts)


def test_click_errors_point_to_the_help() -> None:
    assert invoke("--end", "x").stderr.endswith("; see bench-server --help\n")


# Values

EVERY_OPTION = (
    *("--mode", "cpu", "--rpc-url", "host:1", "--url", "host:2", "--no-http"),
    *("--server-release", "0.5.6", "--transfer-mode", "lmcache_driven"),
    *("--require-transport", "handle", "--kvcache-shape-spec", "(1,8,2,1,4):UINT8:1"),
    *("--num-tokens", "5", "--start", "3", "--end", "9", "--interval", "0", "--tp-size", "2"),
    *("--use-mla", "--model-name", "m", "--cache-salt", "s", "--seed", "0", "--expect-warm"),
    *("--timeout", "1.5", "--visible-within", "0", "--wait-ready", "60"),
    *("--partial-retrieve-every", "4", "--partial-skip", "chunks", "--http-token", "secret"),
)


def test_every_option_reaches_the_run(runs: Runs) -> None:
    assert invoke(*EVERY_OPTION).exit_code == 0
    (config,) = runs
    assert config.spec.text == "(1,8,2,1,4):uint8:1"
    assert {name: value for name, value in vars(config).items() if name != "spec"} == {
        "rpc_url": "tcp://host:1",
        "http_url": "http://host:2",
        "transfer": TransferChoice.LMCACHE_DRIVEN,
        "num_tokens": 5,
        "num_tokens_given": True,
        "start": 3,
        "end": 9,
        "interval_s": 0.0,
        "tp_size": 2,
        "model_name": "m",
        "seed": 0,
        "cache_salt": "s",
        "expect_warm": True,
        "needs_http": False,
        "partial_every": 4,
        "partial_skip": "chunks",
        "require_transport": "handle",
        "server_release": "0.5.6",
        "timeout_s": 1.5,
        "visible_within_s": 0.0,
        "wait_ready_s": 60.0,
        "http_token": "secret",
        "http_ca": "",
        "own_server": False,
        "mode": "cpu",
        "cuda_ipc": "torch",
    }


def test_defaults(runs: Runs) -> None:
    assert invoke("--mode", "cpu").exit_code == 0
    (config,) = runs
    assert config.spec.text == "(2,1024,16,8,128):float16:32"
    assert (config.rpc_url, config.http_url) == ("tcp://localhost:5555", "http://localhost:8080")
    assert (config.num_tokens, config.start, config.end) == (512, 0, None)
    assert (config.interval_s, config.timeout_s) == (0.5, 10.0)
    assert config.needs_http is True
    assert config.partial_every == 10
    assert config.partial_skip == "blocks"
    assert 0 <= config.seed < 2**32


def test_seeds_are_drawn(runs: Runs) -> None:
    for _ in range(3):
        invoke("--mode", "cpu")
    assert len({config.seed for config in runs}) == 3


def test_blocks_of_the_default_spec_and_of_a_given_one(runs: Runs) -> None:
    result = invoke("--mode", "cpu", "--num-blocks", "99", "--block-size", "32")
    assert result.stdout == ""
    result = invoke(
        *("--mode", "cpu", "--num-blocks", "99", "--block-size", "16"),
        *("--kvcache-shape-spec", "(2,128,16,1,4):uint8:1"),
    )
    assert result.stdout == "--num-blocks 99 is overridden by the shape spec's NB = 128\n"
    assert [config.spec.text for config in runs] == [
        "(2,99,32,8,128):float16:32",
        "(2,128,16,1,4):uint8:1",
    ]


def test_embedded_means_cpu_and_a_server_of_our_own(runs: Runs) -> None:
    assert invoke("--embedded").exit_code == 0
    assert invoke("--embedded", "--mode", "cpu").exit_code == 0
    assert [config.own_server for config in runs] == [True, True]
    assert [config.mode for config in runs] == ["cpu", "cpu"]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a GPU, and torch."""
    monkeypatch.setattr(requirements, "require_device", lambda: None)


@pytest.mark.usefixtures("device")
def test_gpu_is_the_default(runs: Runs) -> None:
    assert invoke().exit_code == 0
    assert invoke("--mode", "gpu", "--cuda-ipc", "driver").exit_code == 0
    assert invoke(BENCH_SERVER_CUDA_IPC="driver").exit_code == 0
    facts = [(config.mode, config.cuda_ipc) for config in runs]
    assert facts == [("gpu", "torch"), ("gpu", "driver"), ("gpu", "driver")]


@pytest.mark.usefixtures("device")
def test_an_embedded_server_of_gpus_must_be_asked_for(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text('mode = "gpu"\ncuda-ipc = "driver"\n')
    assert invoke("--embedded", "--mode", "gpu").exit_code == 0
    assert invoke("--embedded", BENCH_SERVER_MODE="gpu").exit_code == 0
    assert invoke("--embedded", "--config", "bench.toml").exit_code == 0
    facts = [(config.own_server, config.mode) for config in runs]
    assert facts == [(True, "gpu")] * 3


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "cpu"),
        ("--embedded",),
        ("--mode", "cpu", "--transfer-mode", "engine_driven"),
        ("--mode", "gpu", "--transfer-mode", "engine_driven"),
        ("--mode", "gpu", "--require-transport", "shm"),
    ],
)
def test_only_the_command_lines_own_cuda_ipc_must_matter(
    runs: Runs, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (tmp_path / "bench.toml").write_text('cuda-ipc = "driver"\n')
    for result in (
        invoke(*args, "--config", "bench.toml"),
        invoke(*args, BENCH_SERVER_CUDA_IPC="driver"),
    ):
        assert result.exit_code == 0, result.output
    assert [config.cuda_ipc for config in runs] == ["torch", "torch"]
    assert_one_line(invoke(*args, "--cuda-ipc", "driver"), 2, "--cuda-ipc")


@pytest.mark.usefixtures("device")
def test_the_embedded_server_is_told_where_the_memory_is(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult
) -> None:
    asked: list[Any] = []

    @contextlib.contextmanager
    def serve(*args: Any, **options: Any) -> Iterator[embedded.EmbeddedServer]:
        asked.append(options)
        yield embedded.EmbeddedServer(rpc_url="tcp://x:1", http_url="http://x:2")

    monkeypatch.setattr(embedded, "embedded_server", serve)
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending: good_result()
    )
    assert invoke("--embedded").exit_code == 0
    assert invoke("--embedded", "--mode", "gpu").exit_code == 0
    assert [options["gpu"] for options in asked] == [False, True]


def test_reports_are_written_before_the_embedded_server_is_stopped(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult
) -> None:
    endings: list[Ending] = []

    @contextlib.contextmanager
    def serve(*args: Any, ending: Ending, **_: Any) -> Iterator[embedded.EmbeddedServer]:
        endings.append(ending)
        yield embedded.EmbeddedServer(rpc_url="tcp://x:1", http_url="http://x:2")
        assert sorted(os.listdir()) == ["r.json", "r.xml"]

    def run(config: RunConfig, scenario: Any, reporter: Any, ending: Ending) -> RunResult:
        endings.append(ending)
        return good_result()

    monkeypatch.setattr(embedded, "embedded_server", serve)
    monkeypatch.setattr(process, "run_to_end", run)
    assert invoke("--embedded", "--json", "r.json", "--junit", "r.xml").exit_code == 0
    assert endings[0] is endings[1]


def test_an_embedded_server_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextlib.contextmanager
    def serve(*_: Any, **__: Any) -> Iterator[embedded.EmbeddedServer]:
        raise FatalError("the embedded server did not start: it said nothing")
        yield

    monkeypatch.setattr(embedded, "embedded_server", serve)
    assert_one_line(invoke("--embedded", "--json", "r.json"), 1, "it said nothing")
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert checks["run"]["texts"] == ["the embedded server did not start: it said nothing"]


def test_options_from_the_environment(runs: Runs) -> None:
    result = invoke(BENCH_SERVER_END="7", BENCH_SERVER_MODE="cpu", BENCH_SERVER_QUIET="1")
    assert result.exit_code == 0
    invoke("--end", "8", BENCH_SERVER_END="7", BENCH_SERVER_MODE="cpu")
    invoke("--mode", "cpu", BENCH_SERVER_END="")
    assert [config.end for config in runs] == [7, 8, None]


def test_wrong_values_from_the_environment() -> None:
    assert_one_line(invoke(BENCH_SERVER_END="seven"), 2, "'seven' is not a decimal integer")
    assert_one_line(invoke(BENCH_SERVER_END="٧"), 2, r"'\u0667' is not a decimal integer")
    assert_one_line(invoke("serve", BENCH_SERVER_SERVE_PORT="-1"), 2, "-1 is out of range")


def test_the_config_file_is_below_environment_and_command_line(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('mode = "cpu"\nstart = 1\nend = 5\nseed = 6\n')
    env = {"BENCH_SERVER_CONFIG": str(path), "BENCH_SERVER_END": "7"}
    assert invoke("--seed", "9", **env).exit_code == 0
    (config,) = runs
    assert (config.start, config.end, config.seed) == (1, 7, 9)


# Ends


@pytest.mark.parametrize(
    "args", [(), ("--mode", "gpu"), ("--embedded", "--mode", "gpu"), ("selftest", "--mode", "gpu")]
)
def test_gpu_without_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: tuple[str, ...]
) -> None:
    monkeypatch.setattr(requirements, "device_count", lambda: 0)
    text = "--mode gpu: this machine has no usable CUDA device; use --mode cpu"
    assert_one_line(invoke(*args), 1, text)
    if "selftest" in args:
        return
    assert_one_line(invoke(*args, "--json", "r.json", "--junit", "r.xml"), 1, text)
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["exit_code"], document["checks"]["run"]["texts"]) == (1, [text])
    assert text in (tmp_path / "r.xml").read_text()


def test_wrong_usage_is_told_before_a_missing_device() -> None:
    assert_one_line(invoke("--mode", "gpu", "--end", "0"), 2, "--end 0 must be greater")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FatalError("no room\nin /dev/shm"), "bench-server: error: no room in /dev/shm\n"),
        (
            KeyboardInterrupt(),
            "bench-server: error: interrupted before the run began: nothing is proven\n",
        ),
    ],
)
def test_fatal_errors_and_interrupts_exit_with_1(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, text: str
) -> None:
    closed: list[TextReporter] = []

    def run(config: RunConfig, _: Any) -> int:
        raise error

    monkeypatch.setattr(play, "_run", run)
    monkeypatch.setattr(TextReporter, "close", lambda reporter: closed.append(reporter))
    result = invoke("--mode", "cpu")
    # click ends the terminal's line, on which ^C stands.
    assert (result.exit_code, result.stderr.lstrip("\n")) == (1, text)
    assert len(closed) == 1


@pytest.mark.parametrize("good", [True, False])
def test_reports_and_exit_code_of_a_run(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path, good: bool
) -> None:
    made = good_result()
    if not good:
        made.ledger.add([failed(CONTENT, "bad")])
    monkeypatch.setattr(process, "run_to_end", lambda config, scenario, reporter, ending: made)
    result = invoke("--mode", "cpu", "--json", "r.json", "--junit", "r.xml")
    assert result.exit_code == (0 if good else 1)
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] == (0 if good else 1)
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert suite.attrib["failures"] == ("0" if good else "1")
    assert sorted(os.listdir(tmp_path)) == ["r.json", "r.xml"]
    invoke("--mode", "cpu", BENCH_SERVER_JSON="e.json", BENCH_SERVER_JUNIT="e.xml")
    assert sorted(os.listdir(tmp_path)) == ["e.json", "e.xml", "r.json", "r.xml"]


def test_what_is_said_last_equals_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    """A report that cannot be written fails the run, in text and in the other report too."""

    def run(config: RunConfig, scenario: Any, reporter: TextReporter, ending: Ending) -> RunResult:
        (tmp_path / "r.json").mkdir()
        return good_result()

    monkeypatch.setattr(process, "run_to_end", run)
    result = invoke("--mode", "cpu", "--json", "r.json", "--junit", "r.xml")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "\nrun: cannot write the report r.json: Is a directory\n" in result.stdout
    assert "\nRESULT: FAIL (exit 1)" in result.stdout
    assert ElementTree.parse(tmp_path / "r.xml").getroot().attrib["failures"] == "1"


@pytest.mark.parametrize("path", ["none/x.json", "/proc/x.json"])
def test_a_report_that_cannot_be_written_is_known_before_the_run(runs: Runs, path: str) -> None:
    for option in ("--json", "--junit"):
        assert_one_line(invoke("--mode", "cpu", option, path), 2, f"{option} {path}: ")
    assert not runs
    assert_one_line(invoke("selftest", "--json", path), 2, f"--json {path}: ")


def test_a_report_on_stdout_leaves_the_lines_to_stderr(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending: good_result()
    )
    result = invoke("--mode", "cpu", "--json", "-")
    assert json.loads(result.stdout)["exit_code"] == result.exit_code == 0
    assert result.stderr.splitlines()[-1].startswith("RESULT: PASS")
    assert os.listdir(tmp_path) == []
    assert_one_line(invoke("--mode", "cpu", "--json", "-", "--junit", "-"), 2, "both name -")


def no_room(_: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_lines_that_cannot_be_written_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, good_result: GoodResult, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        process, "run_to_end", lambda config, scenario, reporter, ending: good_result()
    )
    real = outlet_for
    full = [Outlet(no_room)]
    monkeypatch.setattr(output, "outlet_for", lambda at: full.pop() if full else real(at))
    result = invoke("--mode", "cpu", "--json", "r.json")
    text = "cannot write to standard output: No space left on device"
    assert_one_line(result, 1, f"{text} (exit 1, which would have been 0)")
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["exit_code"], document["checks"]["run"]["texts"]) == (1, [text])


# Text


def test_other_scripts_where_the_locale_has_ascii_alone() -> None:
    """A name arrives as it was typed, and goes out as the terminal can show it."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "benchserver", "--mode", "cpu", "--rpc-url", "127.0.0.1:1"),
            *("--no-http", "--model-name", "модель ü", "--json", "-", "--end", "1"),
        ],
        capture_output=True,
        timeout=60,
        env={
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME")},
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "ascii",
        },
        check=False,
    )
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["config"]["model_name"] == "модель ü"
    assert rb"--model-name '\u043c\u043e\u0434\u0435\u043b\u044c \xfc'" in ended.stderr
    assert b"Traceback" not in ended.stderr


# Help

HEAVY = ("numpy", "zmq", "aiohttp", "rich", "torch", "msgpack", "hdrh")

PROGRAM = f"""
import sys
from benchserver.__main__ import main
sys.argv = ["bench-server", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    loaded = [name for name in {HEAVY} if name in sys.modules]
    print(end.code, loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--help",), 0),
        (("-h",), 0),
        (("serve", "--help"), 0),
        (("--version",), 0),
        (("--end", "x"), 2),
        (("--end", "0"), 2),
        (("--rpc-url", "x"), 2),
    ],
)
def test_help_and_wrong_usage_load_nothing_heavy(args: tuple[str, ...], code: int) -> None:
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
    )
    assert ended.stderr.splitlines()[-1] == f"{code} []"
    assert bool(ended.stdout) is (code == 0)


def test_help_names_every_option() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: bench-server ")
    for parameter in cli.params:
        if not getattr(parameter, "hidden", False):
            assert parameter.opts[0] in result.stdout, parameter.opts
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_every_option_has_a_help_text() -> None:
    for command in (cli, *cli.commands.values()):
        assert all(getattr(parameter, "help", "") for parameter in command.params)


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("bench-server ")


def test_the_faults_are_listed() -> None:
    result = invoke("serve", "--help-faults")
    assert result.exit_code == 0
    assert "late_reply:op=RETRIEVE,delay=1500ms" in result.stdout


def test_wrong_usage_of_a_command_points_to_its_own_help() -> None:
    assert invoke("serve", "--port", "x").stderr.endswith("; see bench-server serve --help\n")
    assert invoke("--end", "x").stderr.endswith("; see bench-server --help\n")
