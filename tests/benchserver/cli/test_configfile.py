"""TOML defaults: their names, their place in the order, and every way to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from benchserver.cli.main import cli

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a reader: options of the main command with a file of the given content."""
    for name in ("END", "START", "CONFIG", "QUIET"):
        monkeypatch.delenv(f"BENCH_SERVER_{name}", raising=False)

    def parse(content: str | bytes, *args: str) -> dict[str, Any]:
        path = tmp_path / "bench.toml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with cli.make_context("bench-server", ["--config", str(path), *args]) as ctx:
            return dict(ctx.params)

    return parse


def refusal(read: Read, content: str | bytes) -> str:
    with pytest.raises(click.UsageError) as caught:
        read(content)
    return caught.value.format_message()


def test_every_kind_of_value(read: Read) -> None:
    options = read(
        'rpc-url = "tcp://host:1"\nend = 20\ninterval = 0.25\ntimeout = 3\nquiet = true\n'
        'no-http = true\nmode = "cpu"\njson = "out.json"\nuse-mla = false\n'
    )
    assert options["rpc_url"] == "tcp://host:1"
    assert options["end"] == 20
    assert options["interval"] == 0.25
    assert options["timeout"] == 3.0
    assert options["quiet"] is True
    assert options["no_http"] is True
    assert options["mode"] == "cpu"
    assert options["json"] == "out.json"
    assert options["use_mla"] is False
    # What the file does not name keeps its default.
    assert options["block_size"] is None


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_flag_called_no_something_means_what_it_says(read: Read, value: str) -> None:
    assert read(f"no-http = {value}\n")["no_http"] is (value == "true")


def test_an_empty_file_changes_nothing(read: Read) -> None:
    options = read("# nothing\n")
    assert (options["end"], options["tp_size"]) == (None, 1)


def test_command_line_and_environment_win(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "start = 1\nend = 10\n"
    assert (read(content)["start"], read(content)["end"]) == (1, 10)
    monkeypatch.setenv("BENCH_SERVER_END", "20")
    assert read(content)["end"] == 20
    options = read(content, "--end", "30")
    assert (options["start"], options["end"]) == (1, 30)


def test_a_table_is_for_its_command(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("end = 3\n[serve]\nport = 7\nl1-size-gb = 0.5\n")
    with cli.make_context("bench-server", ["--config", str(path)]) as ctx:
        assert ctx.params["end"] == 3
        assert isinstance(ctx.command, click.Group)
        serve = ctx.command.commands["serve"]
        with serve.make_context("serve", [], parent=ctx) as child:
            assert (child.params["port"], child.params["l1_size_gb"]) == (7, 0.5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("nonsense = 1", "unknown option 'nonsense'; known: block-size, cache-salt, "),
        ("rpc_url = 'x'", "unknown option 'rpc_url'"),
        ("--end = 1", "unknown option '--end'"),
        ("'\u202eend' = 1", r"unknown option '\u202eend'"),
        ("config = 'x'", "unknown option 'config'"),
        ("help = true", "unknown option 'help'"),
        ("version = true", "unknown option 'version'"),
        ("h = true", "unknown option 'h'"),
        ("end = [1, 2]", "end is an array, expected a single value"),
        ("[bench]\nend = 1", "unknown table [bench]"),
        ("end = {a = 1}", "unknown table [end]"),
        ("[serve]\nend = 1", "unknown option 'end'; known: as, chunk-size"),
        ("[serve.x]\nport = 1", "unknown table [x]"),
        ("end = ", "is not TOML: Invalid value"),
        ("end = 1\nend = 2", "is not TOML"),
        (b"\xff\xfe", "is not TOML: 'utf-8' codec can't decode"),
        (f"end = {'9' * 5000}", "is not TOML"),
        ("x = " + "[" * 100_000, "is not TOML"),
        ("#" * ((1 << 20) + 1), "is longer than 1048576 bytes"),
        ("end = -1", "-1 is out of range, expected 0 to 1099511627776"),
        ("end = 1.5", "1.5 is not a decimal integer"),
        ("end = true", "True is not a decimal integer"),
        ("end = 2026-01-01", "is not a decimal integer"),
        ("interval = nan", "nan is out of range"),
        ("interval = inf", "inf is out of range"),
        ("mode = 'tpu'", "'tpu' is not one of 'gpu', 'cpu'"),
        ("mode = 3", "is not one of 'gpu', 'cpu'"),
    ],
)
def test_refusals(read: Read, content: str | bytes, reason: str) -> None:
    assert reason in refusal(read, content)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nonexistent/x.toml", "No such file or directory"), ("/", "Is a directory")],
)
def test_files_that_cannot_be_read(path: str, reason: str) -> None:
    with pytest.raises(click.UsageError, match=f"{path}: {reason}"):
        cli.make_context("bench-server", ["--config", path])


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(click.UsageError, match="/dev/zero is longer than 1048576 bytes"):
        cli.make_context("bench-server", ["--config", "/dev/zero"])


@pytest.mark.parametrize("faults", ['"delay"', '["delay", "leak_session@2"]'])
def test_an_option_that_may_come_several_times(faults: str, tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(f"[serve]\nfault = {faults}\n")
    with cli.make_context("bench-server", ["--config", str(path)]) as ctx:
        assert isinstance(ctx.command, click.Group)
        with ctx.command.commands["serve"].make_context("serve", [], parent=ctx) as child:
            assert child.params["fault"] == tuple(faults.strip("[]").replace('"', "").split(", "))


def test_several_values_must_be_strings(read: Read) -> None:
    assert "fault must be a string" in refusal(read, "[serve]\nfault = [1]")


@pytest.mark.parametrize(
    "line",
    ["json = true", "junit = 5", "rpc-url = 1979-05-27", "http-token-file = 1.5",
     "server-release = 0.5"],
)  # fmt: skip
def test_a_text_is_no_other_value(read: Read, line: str) -> None:
    """`json = true` was a report in a file named True."""
    key = line.split()[0]
    told = refusal(read, f"{line}\n")
    assert f"{key} = " in told
    assert told.endswith(": expected text in quotes")
