"""A tier's settings, and the store of our own in the place of the real one."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchserver.refserver.tiers.config import MooncakeConfig

FAKE = Path(__file__).with_name("fake_mooncake.py")


@pytest.fixture
def config() -> Iterator[MooncakeConfig]:
    """A tier's settings, with somebody listening where master and metadata server should."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        yield MooncakeConfig(
            master=place, metadata=f"http://{place}/metadata", buffer_bytes=32 << 20
        )


@pytest.fixture
def fake_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the store of our own in the place of the real package."""
    package = tmp_path / "mooncake"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(FAKE, package / "store.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def wrong(fake_store: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Tell the store how to fail."""
    how = str(request.param)
    monkeypatch.setenv("FAKE_MOONCAKE", how)
    return how
