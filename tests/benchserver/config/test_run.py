"""What a run refuses before any traffic, and the words in which it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from benchserver.config.run import RunConfig, check_config
from benchserver.errors import UsageError
from benchserver.options.engine import TransferChoice

MakeConfig = Callable[..., RunConfig]


TWO_GROUPS = "(2,64,16,1,8):float16:1;(1,64,16,1,8):float16:1"


def test_the_default_run_is_fine(make_config: MakeConfig) -> None:
    check_config(make_config())
    check_config(make_config(end=None))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_tokens": 0}, "--num-tokens 0 is out of range, expected 1 to"),
        ({"num_tokens": (1 << 24) + 1}, "--num-tokens 16777217 is out of range"),
        ({"tp_size": 0}, "--tp-size 0 is out of range, expected 1 to 256"),
        ({"tp_size": -3}, "--tp-size -3 is out of range"),
        ({"tp_size": 257}, "--tp-size 257 is out of range"),
        ({"start": -1, "end": 1}, "--start -1 is out of range"),
        ({"start": (1 << 40) + 1, "end": None}, "--start 1099511627777 is out of range"),
        ({"end": -1}, "--end -1 is out of range"),
        ({"end": (1 << 40) + 1}, "--end 1099511627777 is out of range"),
        ({"end": 0}, "--end 0 must be greater than --start 0: sequences run from --start up to"),
        ({"start": 5, "end": 5}, "--end 5 must be greater than --start 5"),
        ({"start": 5, "end": 2}, "--end 2 must be greater than --start 5"),
        ({"concurrency": 0}, "--concurrency 0 is out of range, expected 1 to 1024"),
        ({"concurrency": 1025}, "--concurrency 1025 is out of range"),
        (
            {"concurrency": 17, "end": None, "tp_size": 256},
            "17 clients of 256 ranks are 4352 workers, a run has 4096 at most",
        ),
        ({"seed": -1}, "--seed -1 is out of range"),
        ({"seed": 2**63}, "--seed 9223372036854775808 is out of range"),
        ({"seed": 10**400}, "--seed 10000"),
        ({"partial_every": -1}, "--partial-retrieve-every -1 is out of range, expected 0 to"),
        ({"interval_s": -0.5}, "--interval -0.5 is out of range"),
        ({"interval_s": math.nan}, "--interval nan is out of range"),
        ({"interval_s": math.inf}, "--interval inf is out of range"),
        ({"timeout_s": 0.0}, "--timeout 0 is out of range, expected 0.001 to"),
        ({"timeout_s": math.inf}, "--timeout inf is out of range"),
        ({"visible_within_s": -1.0}, "--visible-within -1 is out of range"),
        ({"wait_ready_s": math.nan}, "--wait-ready nan is out of range"),
        ({"model_name": ""}, "--model-name: a model name must not be empty"),
        ({"model_name": "a@b"}, "--model-name: a model name must not contain '@'"),
        ({"cache_salt": "a/b"}, "--cache-salt: a cache salt must not contain '/'"),
        ({"cache_salt": "x" * 129}, "--cache-salt: a cache salt has at most 128 characters"),
        (
            {"transfer": TransferChoice.ENGINE_DRIVEN, "spec": TWO_GROUPS},
            "--transfer-mode engine_driven carries one KV layer group, the shape spec has 2; "
            "use lmcache_driven",
        ),
        (
            {"mode": "gpu", "cuda_ipc": "driver", "transfer": TransferChoice.ENGINE_DRIVEN},
            "--cuda-ipc driver has no effect with --transfer-mode engine_driven",
        ),
        ({"num_tokens": 15}, "--num-tokens 15 is less than one block of 16 tokens"),
    ],
)
def test_refusals(make_config: MakeConfig, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_config(make_config(**changes))
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_tokens": 16},
        {"num_tokens": 1 << 24},
        {"tp_size": 256},
        {"start": (1 << 40) - 1, "end": 1 << 40},
        {"seed": 0},
        {"seed": 2**63 - 1},
        {"interval_s": 0.0},
        {"timeout_s": 0.001},
        {"visible_within_s": 0.0},
        {"cache_salt": "x" * 128},
        {"transfer": TransferChoice.LMCACHE_DRIVEN, "spec": TWO_GROUPS},
        {"transfer": TransferChoice.AUTO, "spec": TWO_GROUPS},
    ],
)
def test_the_bounds_themselves_are_fine(make_config: MakeConfig, changes: dict[str, Any]) -> None:
    check_config(make_config(**changes))
