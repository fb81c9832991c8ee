"""The replay line, word for word; and parsed again it is the configuration that it was made of."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchserver.cli import play
from benchserver.cli.main import cli
from benchserver.config import target as target_module
from benchserver.config.engine import Engine
from benchserver.config.run import RunConfig
from benchserver.config.target import Target
from benchserver.config.watch import Watch
from benchserver.options.engine import TransferChoice
from benchserver.report.replay import replay_command
from benchserver.result import RunResult
from benchserver.scenarios.baseline.config import BaselineConfig
from shapespec import parse_shape_spec

GoodResult = Callable[..., RunResult]
MakeConfig = Callable[..., RunConfig]

BASE = (
    "bench-server --mode cpu --seed 7 --kvcache-shape-spec '(2,1024,16,8,128):float16:32' "
    "--num-tokens 512 --start 0 --tp-size 1 --transfer-mode auto"
)
GPU_BASE = BASE.replace("cpu", "gpu")
URLS = "--rpc-url tcp://localhost:5555 --url http://localhost:8080"


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, f"{BASE} --end 2 {URLS}"),
        ({"end": None}, f"{BASE} {URLS}"),
        (
            {"require_transport": "shm", "interval_s": 0.0, "timeout_s": 1.5},
            f"{BASE} --require-transport shm --end 2 --interval 0 --timeout 1.5 {URLS}",
        ),
        ({"num_tokens_given": False}, f"{BASE.replace(' --num-tokens 512', '')} --end 2 {URLS}"),
        ({"expect_warm": True}, f"{BASE} --end 2 --expect-warm {URLS}"),
        ({"partial_every": 0}, f"{BASE} --end 2 --partial-retrieve-every 0 {URLS}"),
        ({"partial_skip": "chunks"}, f"{BASE} --end 2 --partial-skip chunks {URLS}"),
        ({"needs_http": False}, f"{BASE} --end 2 --no-http {URLS}"),
        ({"cache_salt": "a b"}, f"{BASE} --end 2 --cache-salt 'a b' {URLS}"),
        ({"model_name": "it's"}, f"{BASE} --end 2 --model-name 'it'\"'\"'s' {URLS}"),
        ({"server_release": "0.5.6"}, f"{BASE} --end 2 --server-release 0.5.6 {URLS}"),
        ({"own_server": True}, f"{BASE} --end 2 --embedded"),
        ({"http_token": "secret"}, f"{BASE} --end 2 {URLS}"),
        (
            {"mode": "gpu", "cuda_ipc": "driver", "partial_skip": "chunks"},
            f"{GPU_BASE} --cuda-ipc driver --end 2 {URLS}",
        ),
        ({"mode": "gpu", "partial_skip": "chunks"}, f"{GPU_BASE} --end 2 {URLS}"),
        ({"mode": "gpu"}, f"{GPU_BASE} --end 2 --partial-skip blocks {URLS}"),
        (
            {"mode": "gpu", "own_server": True, "partial_skip": "chunks"},
            f"{GPU_BASE} --end 2 --embedded",
        ),
        ({"http_ca": "my ca.pem"}, f"{BASE} --end 2 {URLS} --http-ca 'my ca.pem'"),
    ],
)
def test_the_command_that_replays_a_run(
    good_result: GoodResult, make_config: MakeConfig, changes: dict[str, Any], command: str
) -> None:
    assert replay_command(good_result(config=make_config(**changes))) == command


NAMES = [field.name for part in (Target, Engine, BaselineConfig, Watch) for field in fields(part)]

# A value of each field that is not its default, with what it needs beside it.
OTHER: dict[str, dict[str, Any]] = {
    "rpc_url": {"rpc_url": "tcp://host:1"},
    "http_url": {"http_url": "http://host:2"},
    "transfer": {"transfer": TransferChoice.ENGINE_DRIVEN},
    "spec": {"spec": parse_shape_spec("(1,64,16,1,576):uint8:2")},
    "num_tokens": {"num_tokens": 1000},
    "num_tokens_given": {"num_tokens_given": False, "num_tokens": 512},
    "start": {"start": 1},
    "end": {"end": None},
    "duration_s": {"duration_s": 0.1 + 0.2},
    "interval_s": {"interval_s": 0.1 + 0.2},
    "growth_bounds": {"growth_bounds": "server memory=20MB/h"},
    "max_failures": {"max_failures": 3},
    "keep_going": {"keep_going": True},
    "reconnect": {"reconnect": True},
    "reconnect_within_s": {"reconnect": True, "reconnect_within_s": 9.0},
    "stall_after_s": {"stall_after_s": 9.0},
    "growth_every_s": {"growth_every_s": 0.5},
    "tp_size": {"tp_size": 3},
    "model_name": {"model_name": "meta llama/模型 'x'"},
    "seed": {"seed": 2**63 - 1},
    "cache_salt": {"cache_salt": "a tenant"},
    "expect_warm": {"expect_warm": True},
    "needs_http": {"needs_http": False},
    "partial_every": {"partial_every": 0},
    "partial_skip": {"partial_skip": "chunks"},
    "require_transport": {"require_transport": "handle"},
    "server_release": {"server_release": "0.5.6"},
    "timeout_s": {"timeout_s": 0.001},
    "concurrency": {"concurrency": 3},
    "visible_within_s": {"visible_within_s": 1e-05},
    "max_dropped": {"max_dropped": 0.25},
    "wait_ready_s": {"wait_ready_s": 60.0},
    "mode": {"mode": "gpu", "partial_skip": "chunks"},
    "cuda_ipc": {"mode": "gpu", "partial_skip": "chunks", "cuda_ipc": "driver"},
    "http_ca": {"http_ca": "my ca.pem", "http_url": "https://host:2"},
    "own_server": {"own_server": True},
}

NEEDS_NONE = {"http_token"}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BENCH_SERVER_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(target_module, "_check_ca", lambda path, http_url: None)


def parsed(command: str) -> RunConfig:
    """Return the configuration that the command line makes of a command."""
    seen: list[RunConfig] = []

    def run(config: RunConfig, _: Any) -> int:
        seen.append(config)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(play, "_run", run)
        result = CliRunner().invoke(cli, shlex.split(command)[1:], prog_name="bench-server")
    assert result.exit_code == 0, result.output
    return seen[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_replayed(
    make_config: MakeConfig, good_result: GoodResult, name: str
) -> None:
    """A new field needs a value here; `test_what_a_replay_does_without` names the others."""
    if name in NEEDS_NONE:
        return
    config = make_config(**OTHER[name])
    assert config.values()[name] != make_config().values()[name]
    assert parsed(replay_command(good_result(config=config))) == config


def test_what_a_replay_does_without_is_in_no_line(
    make_config: MakeConfig, good_result: GoodResult
) -> None:
    config = make_config(http_token="hunter2")
    assert "hunter2" not in replay_command(good_result(config=config))


@settings(max_examples=15)
@given(
    interval=st.floats(0, 86_400, allow_subnormal=False),
    timeout=st.floats(0.001, 86_400),
    within=st.integers(0, 86_400).map(float),
)
def test_any_seconds_are_replayed(
    make_config: MakeConfig,
    good_result: GoodResult,
    interval: float,
    timeout: float,
    within: float,
) -> None:
    config = make_config(interval_s=interval, timeout_s=timeout, visible_within_s=within)
    assert parsed(replay_command(good_result(config=config))) == config
