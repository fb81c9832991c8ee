"""The bench against the embedded server as every release; and against what is no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchserver.refserver.config import spoken_releases
from protocol.dialects import dialect_of
from tests import acceptance
from tests.mitm.bench import assert_clean, assert_proven, await_bench, run_bench, start_bench
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls
from tests.oddpeers import ODD_PEERS, closed
from tests.real.serverprocess import held_port

RELEASES = spoken_releases()
CASES = acceptance.SMALL_HANDLE_CASES
SPEC, *TP2 = CASES["tp2"]
MLA_SPEC, *MLA_TP2 = CASES["mla_tp2"]
INLINE = ("--transfer-mode", "engine_driven", "--require-transport", "inline")
HANDLE = ("--transfer-mode", "lmcache_driven", "--require-transport", "handle")
FOUND_AS = {"0.5.1": "0.5.0", "0.5.2": "0.5.0", "0.5.4": "0.5.3", "0.5.7rc2": "0.5.7"}
"""As what a release is spoken to that the probe cannot tell from another."""

NOWHERE = "http://127.0.0.1:1"
QUESTION_S = "1.5"
"""How long the probe waits for each answer, on a machine that ten servers and benches share."""


def said_release(release: str) -> str:
    return f"Server version = {release}-embedded, spoken to as {dialect_of(release).name}, seed"


@pytest.fixture(scope="module")
def servers() -> Iterator[Mapping[str, Urls]]:
    """Run one server of every release."""
    with ExitStack() as running:
        yield {
            release: running.enter_context(forked_server("--as", release)).urls
            for release in RELEASES
        }


@pytest.mark.parametrize("release", RELEASES)
def test_every_release(release: str, servers: Mapping[str, Urls], tmp_path: Path) -> None:
    """Two ranks, classical and MLA, and both transfer modes where there are both; all at once."""
    if dialect_of(release).maps_cpu:
        cases = [(SPEC, *TP2, *HANDLE), (MLA_SPEC, *MLA_TP2, *HANDLE), (SPEC, *TP2, *INLINE)]
    else:
        cases = [(SPEC, *TP2), (MLA_SPEC, *MLA_TP2)]
    server = servers[release]
    before, started = acceptance.status_of(server), []
    for number, case in enumerate(cases):
        path = tmp_path / f"report{number}.json"
        options = [*acceptance.options_of(case, 2), "--partial-retrieve-every", "1"]
        started.append((start_bench(server, options, path), path))
    for process, path in started:
        ended = await_bench(process, path)
        assert_proven(ended, 2)
        assert said_release(release) in ended.stdout
        mapped = ended.report["server"]["transport"] == "handle"
        assert bool(ended.report["checks"]["digests"]["passed"]) is mapped
    acceptance.assert_nothing_left(server, before)


def test_every_release_without_http(servers: Mapping[str, Urls], tmp_path: Path) -> None:
    """All at once: most of the time is spent in waiting for answers that do not come."""
    before = {release: acceptance.status_of(server) for release, server in servers.items()}
    options = acceptance.options_of((SPEC, "--no-http", "--timeout", QUESTION_S), 1)
    started = []
    for release, server in servers.items():
        path = tmp_path / f"{release}.json"
        urls = Urls(rpc_url=server.rpc_url, http_url=NOWHERE)
        started.append((start_bench(urls, options, path), path))
    ended = [await_bench(process, path) for process, path in started]
    for (release, server), run in zip(servers.items(), ended, strict=True):
        assert_proven(run, 1)
        assert f"Server version unknown: GET {NOWHERE}/version: cannot connect" in run.stdout
        assert f"asking the server harmless questions, {QUESTION_S} s each ..." in run.stdout
        assert "It answers as release 0." in run.stdout
        assert run.report["server"]["release"] == FOUND_AS.get(release, release)
        acceptance.assert_nothing_left(server, before[release])


def test_a_server_that_another_release_replaces(tmp_path: Path) -> None:
    first, second = "0.5.6", "0.5.0"  # GET_CHUNK_SIZE of the one is NOOP of the other
    options = acceptance.options_of((SPEC,), 1)
    with held_port() as rpc, held_port() as http:
        ports = ("--port", str(rpc), "--http-port", str(http))
        with forked_server("--as", first, *ports) as server:
            ended = run_bench(server.urls, options, tmp_path / "first.json")
            assert_proven(ended, 1)
            assert said_release(first) in ended.stdout
            server.kill()
            with forked_server("--as", second, *ports) as other:
                assert other.urls == server.urls
                ended = run_bench(other.urls, options, tmp_path / "second.json")
                assert_proven(ended, 1)
                assert said_release(second) in ended.stdout


def test_a_wrong_release_that_is_said_clears_nothing(
    servers: Mapping[str, Urls], tmp_path: Path
) -> None:
    server = servers["0.5.0"]
    options = [*acceptance.options_of((SPEC,), 1), "--seed", "5"]
    assert_proven(run_bench(server, options, tmp_path / "stored.json"), 1)
    # GET_CHUNK_SIZE of 0.4.7 is CLEAR in 0.5.0.
    said = start_bench(server, [*options, "--server-release", "0.4.7"], tmp_path / "no.json")
    _, errors = said.communicate(timeout=20)
    assert said.returncode == 2
    assert errors.startswith("bench-server: error: --server-release 0.4.7, but the server says it")
    assert_proven(run_bench(server, [*options, "--expect-warm"], tmp_path / "warm.json"), 1)


def check_refused(port: int, words: str, tmp_path: Path) -> None:
    urls = Urls(rpc_url=f"tcp://127.0.0.1:{port}", http_url=NOWHERE)
    options = ["--no-http", "--timeout", "20", "--end", "1", "--quiet"]
    ended = run_bench(urls, options, tmp_path / "report.json")
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    lines = ended.stdout.splitlines()
    assert [line for line in lines if line.startswith("run: ")] == [
        line for line in lines if line.startswith(f"run: {words}")
    ], ended.explain()
    assert ended.report["checks"]["run"]["failed"] == 1
    assert lines[-2] == "RESULT: FAIL (exit 1)"
    assert ended.stderr == ""


@pytest.mark.parametrize("kind", ["garbage", "HTTP"])
def test_what_is_no_server(kind: str, tmp_path: Path) -> None:
    """Those that nothing is waited for; test_discovery.py has all of them."""
    peer, words = ODD_PEERS[kind]
    with peer() as port:
        check_refused(port, words, tmp_path)


def test_a_closed_port(tmp_path: Path) -> None:
    with closed() as port:
        words = f"cannot reach the server at tcp://127.0.0.1:{port} (Connection refused); start it"
        check_refused(port, words, tmp_path)
