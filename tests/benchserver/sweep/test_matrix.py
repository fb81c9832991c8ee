"""Matrix files: cells of the product, one variable at a time, and everything that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from benchserver.errors import UsageError
from benchserver.sweep.matrix import Matrix, Overrides, parse_matrix
from tests.benchserver.sweep.reports import ROWS

URLS = {"rpc-url": "tcp://h:1", "url": "http://h:2"}
COMMAND = "lmcache server --port {rpc_port} --http-port {http_port} --chunk-size {chunk} {tier}"


def parse(overrides: Overrides | None = None, **document: Any) -> Matrix:
    return parse_matrix({"server": URLS, **document}, ROWS, overrides or Overrides())


def test_the_product() -> None:
    matrix = parse(load={"duration": 2}, vary={"num-tokens": [512, 1024], "concurrency": [1, 4]})
    assert [dict(cell.varied) for cell in matrix.cells] == [
        {"num-tokens": 512, "concurrency": 1},
        {"num-tokens": 512, "concurrency": 4},
        {"num-tokens": 1024, "concurrency": 1},
        {"num-tokens": 1024, "concurrency": 4},
    ]
    assert matrix.cells[1].load == {**URLS, "duration": 2, "num-tokens": 512, "concurrency": 4}
    assert matrix.cells[0].server == ()
    assert matrix.repetitions == 1


def test_one_at_a_time() -> None:
    vary = {"num-tokens": [512, 1024], "concurrency": [1, 4, 8]}
    matrix = parse(mode="one-at-a-time", vary=vary, base={"concurrency": 4})
    assert [tuple(cell.varied.values()) for cell in matrix.cells] == [
        (512, 4),
        (1024, 4),
        (512, 1),
        (512, 8),
    ]


def test_everything_that_a_study_of_a_cache_varies() -> None:
    """Context length x shared share x concurrency or rate x chunk x tier x transfer mode."""
    matrix = parse(
        server={"command": COMMAND},
        load={"duration": 1},
        vary={
            "num-tokens": [2048, 8192],
            "workload": ["shared-prefix:25", "shared-prefix:75"],
            "concurrency": [1, 4],
            "rate": [10, 20.5],
            "chunk": [256, 512],
            "tier": ["", "--l2 fs:///tmp/x"],
            "transfer-mode": ["auto", "inline"],
        },
    )
    assert len({cell.key for cell in matrix.cells}) == len(matrix.cells) == 2**7
    last = matrix.cells[-1]
    assert last.server == (
        *("lmcache", "server", "--port", "{rpc_port}", "--http-port", "{http_port}"),
        *("--chunk-size", "512", "--l2", "fs:///tmp/x"),
    )
    assert last.load["transfer-mode"] == "inline"
    assert "tier" not in last.load
    assert matrix.cells[0].server[-1] == "256"


def test_variables_that_do_not_vary() -> None:
    server = {"command": COMMAND, "chunk": 128, "tier": ""}
    assert parse(server=server).cells[0].server[-2:] == ("--chunk-size", "128")


def test_without_http_the_load_is_told() -> None:
    (cell,) = parse(server={"command": "x {rpc_port}"}).cells
    assert cell.load == {"no-http": True}
    (cell,) = parse(server={"rpc-url": "tcp://h:1"}).cells
    assert cell.load == {"rpc-url": "tcp://h:1", "no-http": True}


def test_the_command_line_wins() -> None:
    matrix = parse(Overrides(command="x {rpc_port}", repetitions=3), server={}, repetitions=2)
    assert matrix.cells[0].server == ("x", "{rpc_port}")
    assert matrix.repetitions == 3
    assert parse(repetitions=2).repetitions == 2


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"lod": {}}, "'lod': not a part of a matrix; known: mode, repetitions, load"),
        ({"load": 3}, "load is not a table: write [load]"),
        ({"mode": "all"}, "mode 'all': expected 'product' or 'one-at-a-time'"),
        ({"repetitions": 0}, "repetitions 0: expected 1 to 100"),
        ({"repetitions": True}, "repetitions True: expected 1 to 100"),
        ({"repetitions": 2.5}, "repetitions 2.5: expected 1 to 100"),
        ({"load": {"x": 1}}, "[load] 'x': neither an option of bench-server load nor a variable"),
        ({"load": {"json": "x"}}, "[load] 'json': the sweep decides that itself"),
        ({"load": {"http-token": "x"}}, "[load] 'http-token': secrets stand in no record"),
        ({"load": {"duration": float("nan")}}, "[load] 'duration': --duration nan is out of range"),
        ({"load": {"duration": "2"}}, "[load] 'duration': '2' is not a number"),
        ({"load": {"duration": True}}, "[load] 'duration': True is not a number"),
        ({"load": {"concurrency": 1.5}}, "[load] 'concurrency': 1.5 is not a whole number"),
        ({"load": {"concurrency": 65}}, "--concurrency 65 is out of range, expected 1 to 64"),
        ({"load": {"concurrency": [1]}}, "[load] 'concurrency': [1] is not a whole number"),
        ({"load": {"transfer-mode": "x"}}, "'x' is not one of auto, inline"),
        ({"load": {"use-mla": 1}}, "1: expected true or false"),
        ({"load": {"workload": True}}, "True: expected text"),
        ({"vary": {"concurrency": 1}}, "[vary] 'concurrency': expected a list of values"),
        ({"vary": {"concurrency": []}}, "[vary] 'concurrency': expected a list of values"),
        ({"vary": {"concurrency": [1, 1]}}, "two cells are the same: concurrency=1 and"),
        ({"vary": {"concurrency": [1, 99]}}, "--concurrency 99 is out of range"),
        ({"vary": {"chunk": [1]}}, "[vary] 'chunk': neither an option of bench-server load nor"),
        ({"vary": {"requests": [1] * 1001}}, "1001 values, at most 1000"),
        (
            {"vary": {"requests": list(range(1, 1000)), "num-tokens": list(range(1, 12))}},
            "[vary]: 10989 cells, at most 10000",
        ),
        (
            {"load": {"concurrency": 1}, "vary": {"concurrency": [1, 2]}},
            "[vary] 'concurrency': it has a fixed value as well",
        ),
        ({"base": {"concurrency": 1}}, "[base] is for mode = 'one-at-a-time'"),
        (
            {"mode": "one-at-a-time", "base": {"concurrency": 1}},
            "[base] 'concurrency': it does not vary",
        ),
        (
            {"mode": "one-at-a-time", "base": {"requests": 0}, "vary": {"requests": [1]}},
            "[base] 'requests': --requests 0 is out of range",
        ),
        ({"server": {}}, "no server: give --server-cmd, or command or rpc-url in [server]"),
        ({"server": {"url": "http://h:2"}}, "no server: give --server-cmd"),
        ({"server": {"command": 3}}, "[server] command: expected text in quotes"),
        ({"server": {**URLS, "command": "x {rpc_port}"}}, "exclude each other"),
        ({"server": {"command": COMMAND}}, "has {chunk}, and neither [vary] nor [server] has a"),
        ({"server": {"command": "x"}}, "has no {rpc_port}"),
        ({"server": {"command": "x {rpc_port}", "l1": 3}}, "[server] 'l1': not a variable of its"),
        ({"server": {"command": "x {rpc_port}", "l1": [3]}}, "[server] 'l1': expected one value"),
        (
            {"server": {"command": "x {rpc_port} {l1}"}, "vary": {"l1": [[1]]}},
            "[vary] 'l1': [1] is not one value",
        ),
    ],
)
def test_what_is_no_matrix(document: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(**document)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
