"""The bench against a server whose HTTP API is behind TLS and asks for a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import acceptance
from tests.mitm.bench import Ended, assert_clean, assert_proven, run_bench
from tests.mitm.forkedserver import forked_server
from tests.mitm.running import Urls
from tests.tlsstage import OPENSSL, Certificate, make_certificate, tls_before

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make a certificate with")

TOKEN = "hunter2-hunter2-hunter2"
OPTIONS = acceptance.options_of(acceptance.SMALL_HANDLE_CASES["float16"], 1)
SAID = [*OPTIONS, "--server-release", "0.5.6"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Where it listens, and what it takes to be heard there."""

    urls: Urls
    certificate: Certificate
    token_file: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, token_file = make_certificate(folder, "DNS:localhost"), folder / "token"
    token_file.write_text(f"{TOKEN}\n")
    with forked_server("--http-token-file", str(token_file)) as running:
        port = urlsplit(running.urls.http_url).port
        assert port is not None
        with tls_before(port, certificate) as front:
            urls = Urls(rpc_url=running.urls.rpc_url, http_url=f"https://localhost:{front}")
            yield Guarded(urls=urls, certificate=certificate, token_file=token_file)


def run(server: Guarded, options: list[str], tmp_path: Path) -> Ended:
    ended = run_bench(server.urls, options, tmp_path / "report.json")
    assert TOKEN not in ended.stdout + ended.stderr + json.dumps(ended.report)
    return ended


def test_with_both(server: Guarded, tmp_path: Path) -> None:
    trust = ["--http-ca", str(server.certificate.path)]
    ended = run(server, [*OPTIONS, *trust, "--http-token-file", str(server.token_file)], tmp_path)
    assert_proven(ended, 1)
    assert "Server version = 0.5.6-embedded, spoken to as 0.5.6" in ended.stdout
    assert ended.report["checks"]["digests"]["passed"] == 2
    ended = run(server, [*OPTIONS, *trust, "--http-token", TOKEN], tmp_path)
    assert_proven(ended, 1)


@pytest.mark.parametrize(
    ("wrong_token", "words"), [(False, "none was given"), (True, "this one is not accepted")]
)
def test_without_the_token(server: Guarded, wrong_token: bool, words: str, tmp_path: Path) -> None:
    options = [*SAID, "--http-ca", str(server.certificate.path)]
    options += ["--http-token", "wrong"] if wrong_token else []
    ended = run(server, options, tmp_path)
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    assert {"digests", "residue"} <= ended.bad_checks
    told = f"HTTP 401, it wants a bearer token, and {words}; give it with --http-token-file or in"
    assert told in ended.stdout


def test_without_the_authority(server: Guarded, tmp_path: Path) -> None:
    ended = run(server, [*SAID, "--http-token-file", str(server.token_file)], tmp_path)
    assert_clean(ended)
    assert ended.exit_code == 1, ended.explain()
    assert {"digests", "residue"} <= ended.bad_checks
    told = f"GET {server.urls.http_url}/version: the server's certificate is not accepted (self-"
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("Server version unk")]
    assert told in line
    assert ended.stderr == ""
