"""Options of the baseline to what its run is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchserver.options.engine import TransferChoice
from tests.benchserver.cli.commandline import Runs, assert_one_line, invoke

EVERY_OPTION = (
    *("--mode", "cpu", "--rpc-url", "host:1", "--url", "host:2", "--no-http"),
    *("--server-release", "0.5.6", "--transfer-mode", "lmcache_driven"),
    *("--require-transport", "handle", "--kvcache-shape-spec", "(1,8,2,1,4):UINT8:1"),
    *("--num-tokens", "5", "--start", "3", "--end", "9", "--interval", "0", "--tp-size", "2"),
    *("--use-mla", "--model-name", "m", "--cache-salt", "s", "--seed", "0", "--expect-warm"),
    *("--timeout", "1.5", "--visible-within", "0", "--wait-ready", "60"),
    *("--partial-retrieve-every", "4", "--partial-skip", "chunks", "--http-token", "secret"),
    *("--concurrency", "6"),
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
        "duration_s": None,
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
        "max_dropped": 0.0,
        "growth_bounds": "",
        "max_failures": None,
        "keep_going": False,
        "reconnect": False,
        "reconnect_within_s": 60.0,
        "stall_after_s": None,
        "growth_every_s": 5.0,
        "concurrency": 6,
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
    assert (config.needs_http, config.concurrency) == (True, 1)
    assert config.partial_every == 10
    assert config.partial_skip == "blocks"
    assert 0 <= config.seed < 2**32


def test_a_trace_says_how_long_requests_are(runs: Runs, tmp_path: Path) -> None:
    line = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}'
    (tmp_path / "t").write_text(line)
    given = ("load", "--mode", "cpu", "--workload", f"trace:{tmp_path / 't'}")
    assert invoke(*given).stdout == invoke(*given, "--num-tokens", "600").stdout == ""
    assert invoke(*given, "--num-tokens", "512").stdout == (
        "--num-tokens 512 is overridden by the workload's longest request of 600\n"
    )
    assert {config.num_tokens for config in runs} == {600}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--arrivals", "poisson"), "--arrivals needs --rate, which says how many requests arrive"),
        (("--step-duration", "10"), "--step-duration needs --rate, the ramp FROM:TO:STEP"),
        (("--rate", ""), "--rate is empty: expected requests a second, or a ramp"),
        (("--reconnect-within", "9"), "--reconnect-within needs --reconnect, which waits for it"),
        (("--interval-log-every", "9"), "--interval-log-every needs --interval-log, the file"),
    ],
)
def test_what_nothing_asks_for_is_one_line(runs: Runs, given: tuple[str, ...], text: str) -> None:
    assert_one_line(invoke("load", "--mode", "cpu", *given), 2, text)
    assert not runs
    assert invoke("load", "--mode", "cpu", "--rate", "5", "--arrivals", "poisson").exit_code == 0


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
