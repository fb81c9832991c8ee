"""Versions, and the commit of a checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from benchserver.environment.software import revision_of, software_document, version_of

_WITHIN_S = 60.0


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_versions_of_packages() -> None:
    document = software_document(_WITHIN_S)
    assert re.fullmatch(r"[0-9][0-9.a-z]+", document["packages"]["click"])
    assert document["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert version_of("no-such-package-of-ours") == "not installed"


def test_a_library_that_is_not_loaded_is_not_loaded_for_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("zmq", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    document = software_document(_WITHIN_S)
    assert document["libzmq"] == "not known: zmq is not loaded"
    assert document["torch_cuda"] == "not known: torch is not loaded"
    assert not {"zmq", "torch"} & set(sys.modules)


@pytest.mark.parametrize(("cuda", "said"), [("12.8", "12.8"), (None, "none")])
def test_a_library_that_is_loaded_says_what_its_package_does_not(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, said: str
) -> None:
    version = SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", cast(ModuleType, SimpleNamespace(version=version)))
    zmq = SimpleNamespace(zmq_version=lambda: "4.3.5")
    monkeypatch.setitem(sys.modules, "zmq", cast(ModuleType, zmq))
    document = software_document(_WITHIN_S)
    assert (document["torch_cuda"], document["libzmq"]) == (said, "4.3.5")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_a_checkout_and_whether_files_were_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    git(tmp_path, "tag", "v1")
    revision = revision_of(tmp_path, _WITHIN_S)
    assert re.fullmatch(r"[0-9a-f]{40}", revision)
    (tmp_path / "file").write_text("two")
    assert revision_of(tmp_path, _WITHIN_S) == f"{revision}-dirty"


def test_what_is_no_checkout_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert revision_of(tmp_path, _WITHIN_S) == "not known: this is no checkout"
    (tmp_path / ".git").mkdir()
    if shutil.which("git") is not None:
        assert re.fullmatch(r"not known: git ended with [0-9]+", revision_of(tmp_path, _WITHIN_S))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision_of(tmp_path, _WITHIN_S) == "not known: git is not installed"


def test_git_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision_of(tmp_path, 0.2) == "not known: git gave no answer within 0.2 s"
