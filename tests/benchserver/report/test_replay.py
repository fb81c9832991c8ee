"""The replay line, word for word; that it is the same run is tested with the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchserver.config.run import RunConfig
from benchserver.report.replay import replay_command
from benchserver.result import RunResult

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
