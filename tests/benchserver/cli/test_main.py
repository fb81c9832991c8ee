"""The group of commands: wrong usage in one line, help, version, nothing slow on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benchserver.cli.main import cli
from tests.benchserver.cli.commandline import assert_one_line, invoke

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
        ("--cuda-ipc driver has no effect with --transfer-mode engine_driven",),
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


HEAVY = ("asyncio", "ssl", "numpy", "zmq", "aiohttp", "rich", "torch", "msgpack", "hdrh")


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
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert all(option.help for option in options)


@pytest.mark.parametrize("command", ["ping", "serve", "selftest"])
@pytest.mark.parametrize(
    "given", [("--rpc-url", "tcp://h:1"), ("--json", "x"), ("--end", "1"), ("--quiet",)]
)
def test_an_option_before_a_command_is_not_lost(command: str, given: tuple[str, ...]) -> None:
    """A ping went to localhost, whatever --rpc-url stood before it."""
    ended = invoke(*given, command)
    assert_one_line(ended, 2, f"{given[0]} stands before {command}, which does not hear of it")
