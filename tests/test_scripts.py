"""The scripts that stand on the same code as the tests still run: one short round of each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SHORT = {
    "fuzz_server": ("--seconds", "3", "--seed", "1"),
    "soak_evictions": ("--sequences", "64", "--workers", "2", "--seed", "1"),
    "kill_fs_tier": ("--rounds", "1", "--seed", "1"),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_round_passes(name: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / name), *SHORT[name]]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout
    assert "PASS" in ended.stdout
