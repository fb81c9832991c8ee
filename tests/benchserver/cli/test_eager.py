"""Options that print something and leave."""

from __future__ import annotations

from importlib import metadata

import pytest

from tests.benchserver.cli.commandline import invoke


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("bench-server ")


def test_it_comes_before_whatever_is_wrong_beside_it() -> None:
    assert invoke("--version", "--end", "x").exit_code == 0


def test_code_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    assert invoke("--version").stdout == "bench-server (not installed)\n"
