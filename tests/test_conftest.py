"""What tests/conftest.py must notice: each kind of thing left behind fails a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__)

TESTS = """
import asyncio
import os

import pytest

pytestmark = pytest.mark.usefixtures("leak_free")

@pytest.mark.asyncio
async def test_clean():
    server = await asyncio.start_server(print, "127.0.0.1", 0)
    server.close()
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await asyncio.wait([task])

@pytest.mark.asyncio
async def test_task():
    globals()["kept"] = asyncio.create_task(asyncio.sleep(60))

@pytest.mark.asyncio
async def test_error_of_a_task():
    async def fail():
        raise ValueError
    asyncio.create_task(fail())
    await asyncio.sleep(0)

@pytest.mark.asyncio
async def test_error_of_a_callback():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)

@pytest.mark.asyncio
async def test_descriptor():
    globals()["read"], globals()["write"] = os.pipe()
"""


def test_what_a_coroutine_leaves_behind_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_left.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--rootdir", str(tmp_path), "-c", "/dev/null", "-o", "asyncio_mode=strict"]
    run = subprocess.run(
        [*command, str(tmp_path)],
        cwd=HERE.parent.parent,
        env={**os.environ, "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [line for line in run.stdout.splitlines() if line.startswith("ERROR ")]
    for test, reason in zip(
        ("task", "error_of_a_task", "error_of_a_callback", "descriptor"),
        ("tasks left", "nobody handled", "nobody handled", "left open"),
        strict=True,
    ):
        assert any(f"::test_{test} - " in line and reason in line for line in found), run.stdout
    assert "5 passed" in run.stdout
    assert "4 errors" in run.stdout
