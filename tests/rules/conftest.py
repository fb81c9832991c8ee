"""A small source tree in which each test plants one offence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.rules.source import Source, read_source

Plant = Callable[[dict[str, str]], Source]

GOOD = {
    "protocol/__init__.py": '"""A package."""\n',
    "protocol/wire.py": '"""A module."""\n\n\ndef send() -> None:\n    pass\n',
    "benchserver/__init__.py": "",
    "benchserver/run.py": "from protocol.wire import send\n\nsend()\n",
    "tests/protocol/test_wire.py": "def test_send() -> None:\n    assert True\n",
    "tests/benchserver/test_run.py": "def test_run() -> None:\n    assert True\n",
    "scripts/measure": "#!/usr/bin/env python3\nprint()\n",
    "scripts/lib": "#!/usr/bin/env bash\necho not Python (\n",
}
"""A tree that keeps every rule."""


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Return a function that writes the good tree with some files more, or others, and reads it."""

    def write(files: dict[str, str]) -> Source:
        for place, text in {**GOOD, **files}.items():
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
        return read_source(tmp_path)

    return write
