"""A sweep over real servers that it starts itself, with chunk sizes of their own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchserver.embedded import own_environment
from tests.mitm.forked import ROOT
from tests.real.conftest import Environment
from tests.real.serverprocess import server_command

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("in_depth"),
]

WITHIN_S = 380.0
_MATRIX = """
[load]
requests = 20
mode = "cpu"
num-tokens = 512
kvcache-shape-spec = "(2,1024,16,2,64):float16:4"
[vary]
chunk_size = [128, 256]
"""


def test_a_sweep_of_chunk_sizes(environment: Environment, tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(_MATRIX)
    mode = environment.release.mode_options(environment.release.widest_on_cpu, "")
    words = server_command(environment.python, 0, 1, [*mode, "--chunk-size", "{chunk_size}"])
    words[words.index("--port") + 1] = "{rpc_port}"
    words[words.index("--http-port") + 1] = "{http_port}"
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchserver",
            "sweep",
            str(path),
            "--server-cmd",
            shlex.join(words),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**own_environment(), "PYTHONPATH": str(ROOT)},
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.stderr == ""
    table = json.loads((tmp_path / "matrix.sweep" / "table.json").read_bytes())
    assert table["complete"], ended.stdout
    assert [cell["wrong"] for cell in table["cells"]] == [[], []]
    for record in (tmp_path / "matrix.sweep" / "records").iterdir():
        found = json.loads(record.read_bytes())
        chunk_size = found["cell"]["varied"]["chunk_size"]
        assert found["report"]["server"]["chunk_tokens"] == chunk_size
        assert found["exit_code"] == 0
