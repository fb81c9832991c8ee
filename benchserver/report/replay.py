"""The command that asks for a run again, made from every field of its configuration: pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from benchserver.config import RunConfig, default_partial_skip
from benchserver.defaults import (
    DEFAULT_CUDA_IPC,
    DEFAULT_INTERVAL_S,
    DEFAULT_MODEL_NAME,
    DEFAULT_NUM_TOKENS,
    DEFAULT_PARTIAL_EVERY,
    DEFAULT_TIMEOUT_S,
    DEFAULT_VISIBLE_WITHIN_S,
)
from benchserver.result import RunResult

Words = Callable[[RunConfig], list[str]]


def replay_command(result: RunResult) -> str:
    """Return the command that asks for the same sequences, judged by the same options, again."""
    words = [word for words_of in WORDS.values() for word in words_of(result.config)]
    return shlex.join(["bench-server", *words])


def _option(name: str, value: object, default: object = "") -> list[str]:
    return [] if value == default else [name, str(value)]


def _seconds(name: str, value: float, default: float) -> list[str]:
    return _option(name, repr(value).removesuffix(".0"), repr(default).removesuffix(".0"))


def _num_tokens(config: RunConfig) -> list[str]:
    default = "" if config.num_tokens_given else DEFAULT_NUM_TOKENS
    return _option("--num-tokens", config.num_tokens, default)


def _none(_: RunConfig) -> list[str]:
    return []


WORDS: Mapping[str, Words] = {
    "mode": lambda c: ["--mode", c.mode],
    "seed": lambda c: ["--seed", str(c.seed)],
    "spec": lambda c: ["--kvcache-shape-spec", c.spec.text],
    "num_tokens": _num_tokens,
    "start": lambda c: ["--start", str(c.start)],
    "tp_size": lambda c: ["--tp-size", str(c.tp_size)],
    "transfer": lambda c: ["--transfer-mode", c.transfer.value],
    "require_transport": lambda c: _option("--require-transport", c.require_transport),
    "cuda_ipc": lambda c: _option("--cuda-ipc", c.cuda_ipc, DEFAULT_CUDA_IPC),
    "end": lambda c: _option("--end", c.end, None),
    "interval_s": lambda c: _seconds("--interval", c.interval_s, DEFAULT_INTERVAL_S),
    "timeout_s": lambda c: _seconds("--timeout", c.timeout_s, DEFAULT_TIMEOUT_S),
    "visible_within_s": lambda c: _seconds(
        "--visible-within", c.visible_within_s, DEFAULT_VISIBLE_WITHIN_S
    ),
    "wait_ready_s": lambda c: _seconds("--wait-ready", c.wait_ready_s, 0.0),
    "expect_warm": lambda c: ["--expect-warm"] if c.expect_warm else [],
    "partial_every": lambda c: _option(
        "--partial-retrieve-every", c.partial_every, DEFAULT_PARTIAL_EVERY
    ),
    "partial_skip": lambda c: _option(
        "--partial-skip", c.partial_skip, default_partial_skip(c.mode)
    ),
    "model_name": lambda c: _option("--model-name", c.model_name, DEFAULT_MODEL_NAME),
    "server_release": lambda c: _option("--server-release", c.server_release),
    "cache_salt": lambda c: _option("--cache-salt", c.cache_salt),
    "cross_check": lambda c: [] if c.cross_check else ["--no-http"],
    "own_server": lambda c: ["--embedded"] if c.own_server else [],
    "rpc_url": lambda c: [] if c.own_server else ["--rpc-url", c.rpc_url],
    "http_url": lambda c: [] if c.own_server else ["--url", c.http_url],
    "http_ca": lambda c: _option("--http-ca", c.http_ca),
    "num_tokens_given": _none,  # --num-tokens stands there, or it does not
}
"""What each field of a configuration takes on the command line, in this order."""

NEEDS_NONE: Mapping[str, str] = {
    "http_token": "a secret: whoever replays the run has it from a file or the environment",
}
"""The fields that a replay does without, and why."""
