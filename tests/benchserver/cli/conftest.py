"""A command line without the user's own variables, and what it would run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchserver.cli import play
from benchserver.config.run import RunConfig
from benchserver.kv.gpu import requirements
from tests.benchserver.cli.commandline import Runs


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the user's own variables, and write nothing where the tests are."""
    for name in list(os.environ):
        if name.startswith("BENCH_SERVER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Collect the configurations that would run, and run none."""
    seen: Runs = []

    def run(config: RunConfig, _: Any) -> int:
        seen.append(SimpleNamespace(**config.values()))
        return 0

    monkeypatch.setattr(play, "_run", run)
    return seen


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a GPU, and torch."""
    monkeypatch.setattr(requirements, "require_device", lambda: None)
